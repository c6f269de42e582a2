/* One effect from accept to settlement, with everyone who may touch it: two dispatchers, the scheduler, a
 * reconciler, a person, an operator, the provider, and time. The names are the code's; settle() and
 * claim() follow settle_batch and claim_batch in common/store/functions line by line.
 *
 * Messages carry nothing, so none are modelled: a dispatcher may be asked to claim at any time and any
 * number of times. A pause is a process that is not scheduled. A crash is a branch at every step. Each
 * function of the database is one atomic step, since it holds the row from its first look to its COMMIT.
 *
 * Configurations:  (none)  one write attempt, with everything
 *                  REPLAY  from a claimed effect on: a person may ask for the write again (attempt 2, same
 *                          key); the provider and the reads do less, as the search would take too long
 *                  LIVE    what must happen in the end, under weak fairness, with one dispatcher
 * BREAK_x takes one safeguard away; tests/model/run says which property must be violated then. */

#ifdef REPLAY
#define SEQS 2
#else
#define SEQS 1
#define ALL
#endif
#define me (_pid - 1) /* of a dispatcher: 0 or 1, as init starts them first */
#define NOBODY 2 /* an attempt that no running try knows for its own */
#define NONE 3   /* no such attempt */
#define HOLD 2   /* what the effect takes of its limit */

mtype:stage = { STAGE_READY, STAGE_DISPATCHING, STAGE_RECONCILING, STAGE_SETTLED, STAGE_REJECTED };
mtype:outcome = { OUTCOME_PENDING, OUTCOME_UNKNOWN, OUTCOME_SUCCEEDED, OUTCOME_FAILED,
                  OUTCOME_NOT_DISPATCHED };
mtype:reason = { REASON_NONE, REASON_PROVIDER_2XX, REASON_PROVIDER_4XX, REASON_NEVER_LEFT,
                 REASON_PROVIDER_RECORD, REASON_MANUAL, REASON_REFUSED, REASON_EXPIRED,
                 REASON_CANCELLED };
mtype:mover = { MOVER_INGEST, MOVER_DISPATCHER, MOVER_SWEEP, MOVER_RECONCILER, MOVER_PERSON };
mtype:kind = { KIND_DISPATCH, KIND_RECONCILE, KIND_MANUAL, KIND_REJECT, KIND_SWEEP };
mtype:result = { RESULT_SETTLED, RESULT_UNKNOWN, RESULT_PENDING, RESULT_EVIDENCE, RESULT_LATE,
                 RESULT_CONFLICT, RESULT_WRONG_STAGE, RESULT_IN_FLIGHT };
mtype:read = { READ_NONE, READ_UNKNOWN, READ_CONFIRM, READ_WATCH,                      /* purpose */
               READ_MATCH, READ_PROVIDER_FAILED, READ_NOT_FINAL, READ_NOT_FOUND, READ_CONFLICT };
mtype:record = { RECORD_NONE, RECORD_PENDING, RECORD_APPLIED, RECORD_FAILED, RECORD_TWICE };
mtype:line = { LINE_FREE, LINE_SENT, LINE_2XX, LINE_4XX, LINE_PENDING, LINE_FAILED };

/* What must hold. */
#define ONE_WRITE_AN_ATTEMPT 1            /* a request leaves at most once per (effect, seq) */
#define APPLIED_ONCE 2                    /* and is done at most once, replayed or not */
#define GATE_SHUT_PAST_SEND_BY 3
#define QUIET_AFTER_HALT 4                /* nothing passes the gate once halt has said that nothing will */
#define SETTLED_NEVER_CHANGES 5
#define NEVER_SENT_IS_TRUE 6              /* rejected, or failed (never left): the provider got nothing, ever */
#define FAILED_IS_TRUE_OR_A_PERSONS 7     /* failed, and its hold released: it was not done, or a person said so */
#define SETTLED_BY_EVIDENCE_OR_A_PERSON 8 /* what settles is the provider's word, a shut gate, or a person's */
#define NOT_RESOLVED_IN_FLIGHT 9          /* no person decides while a write may still be answered */
#define HOLD_CONSERVED 10                 /* reserved + consumed + released is what was held */
#define HELD_WHILE_OPEN 11                /* all of it is held, and exposed while unknown */
#define CONTRADICTION_MARKED 12           /* what contradicts a settlement marks it as in conflict */
#define READ_DUE 13                       /* what may have happened is looked up again */
#define MOVES_OF_THE_TABLE 14             /* nobody makes a move that common/transition.c has not for him */
#define NOTHING_WRITTEN_PAST_SEND_BY 15   /* which is not so: the residue of docs/protocol.md */
#define HELD_IN_CONFLICT 16               /* failed: nothing is held, but all of it once that was contradicted */

/* -DONLY=x looks at one of them, so that a broken model shows that very one violated. */
#ifndef ONLY
#define ONLY 0
#endif
inline holds(property, condition)
{
    if
    :: !(condition) && (ONLY == 0 || ONLY == property) -> printf("violated: %d\n", property); assert(false)
    :: else
    fi
}

/* ---------------------------------------------------------------- the database */

mtype:stage stage = STAGE_READY;         /* of the open row, else what the settlement says */
mtype:outcome outcome = OUTCOME_PENDING;
mtype:reason reason = REASON_NONE;       /* of the settlement */
bit open_conflict;                       /* open_effects.conflict */
bit conflict;                            /* a row of conflicts */
bit contradicted;                        /* a row of contradictions: it was settled when it was contradicted */
byte last_seq;
bit timed;                               /* open_effects.answer_by and send_by are set: last_seq's */
byte owner[SEQS + 1] = NONE;             /* of each attempt: whose running try has its claim_id */
bit ended[SEQS + 1];                     /* its end was reported, by its worker or the sweep */
byte reserved, exposed, consumed, released;
mtype:read purpose = READ_NONE;          /* of the row of reads_due; READ_NONE: there is none */
bit scheduled;                           /* its due_at is not infinity */
bit watched;                             /* what a person resolved failed was watched to the end */
bit replay_asked;
bit ghost[SEQS + 1];                     /* a claim that a lost connection may yet bring to its COMMIT */
bit expired;                             /* dispatch_before has passed */
bit halted, quiet_later;                 /* what halt answered: something may leave until quiet_at */

/* ---------------------------------------------------------------- the world */

#define TIME_TO_SEND 0
#define TIME_TO_ANSWER 1
#define TIME_OVER 2
byte time[SEQS + 1];                     /* where the clock stands for each attempt's deadlines */
#define NO_TRY 0
#define IN_TIME 1
#define LATE 2
byte try[2];                             /* a dispatcher's own deadline, from before its BEGIN */
byte writes[SEQS + 1];                   /* how often each attempt's request left */
mtype:line line[SEQS + 1] = LINE_FREE;   /* between dispatcher and provider */
bit listens[SEQS + 1];                   /* whether the dispatcher still reads the answer */
mtype:record record = RECORD_NONE;       /* the provider's own, under the effect's key */
byte applied;                            /* how often it did what was asked */
bit orphan[SEQS + 1];                    /* the process that claimed it is dead */
bit journaled[SEQS + 1];                 /* the gate's entry in that process's journal */

/* for the properties only: what the effect was settled as */
mtype:outcome told = OUTCOME_PENDING;
mtype:reason told_reason = REASON_NONE;

#define is_open (stage == STAGE_READY || stage == STAGE_DISPATCHING || stage == STAGE_RECONCILING)
#define in_flight_by(s) (timed && time[s] != TIME_OVER)
#define really_in_flight(s) (owner[s] != NONE && !ended[s] && time[s] != TIME_OVER)
#define is_applied (record == RECORD_APPLIED || record == RECORD_TWICE)
#define is_final(o) (o == OUTCOME_SUCCEEDED || o == OUTCOME_FAILED)

/* The state table of common/transition.c; tests/model/names.py holds the two against each other. */
#define may_move(from, to, mover) \
    (from == STAGE_READY && to == STAGE_DISPATCHING && mover == MOVER_DISPATCHER || \
     from == STAGE_READY && to == STAGE_REJECTED && mover == MOVER_DISPATCHER || \
     from == STAGE_READY && to == STAGE_REJECTED && mover == MOVER_INGEST || \
     from == STAGE_READY && to == STAGE_REJECTED && mover == MOVER_SWEEP || \
     from == STAGE_DISPATCHING && to == STAGE_RECONCILING && mover == MOVER_DISPATCHER || \
     from == STAGE_DISPATCHING && to == STAGE_RECONCILING && mover == MOVER_SWEEP || \
     from == STAGE_DISPATCHING && to == STAGE_RECONCILING && mover == MOVER_RECONCILER || \
     from == STAGE_DISPATCHING && to == STAGE_SETTLED && mover == MOVER_DISPATCHER || \
     from == STAGE_DISPATCHING && to == STAGE_SETTLED && mover == MOVER_PERSON || \
     from == STAGE_DISPATCHING && to == STAGE_SETTLED && mover == MOVER_RECONCILER || \
     from == STAGE_RECONCILING && to == STAGE_SETTLED && mover == MOVER_RECONCILER || \
     from == STAGE_RECONCILING && to == STAGE_SETTLED && mover == MOVER_DISPATCHER || \
     from == STAGE_RECONCILING && to == STAGE_SETTLED && mover == MOVER_PERSON)

inline move(to, mover)
{
    holds(MOVES_OF_THE_TABLE, may_move(stage, to, mover));
    stage = to
}

/* What can make no difference any more is set to one value, or there were many states for one. */
inline forget(s)
{
    if
    :: !is_open || s != last_seq || !timed -> orphan[s] = 0
    :: else
    fi;
    if
    :: !is_open ->
        journaled[s] = 0;
        ended[s] = 1;
        ghost[s] = 0;
        time[s] = (owner[s] == NOBODY -> TIME_OVER : time[s])
    :: else
    fi
}

/* What must hold after every step. */
inline check()
{
    holds(SETTLED_NEVER_CHANGES, told == OUTCOME_PENDING || !is_open && told == outcome && told_reason == reason);
    holds(NEVER_SENT_IS_TRUE, !(stage == STAGE_REJECTED || reason == REASON_NEVER_LEFT)
                              || writes[1] + writes[SEQS] == 0);
    holds(FAILED_IS_TRUE_OR_A_PERSONS, is_open || outcome == OUTCOME_SUCCEEDED || !is_applied
                                       || reason == REASON_MANUAL);
    holds(HOLD_CONSERVED, reserved + consumed + released == (owner[1] == NONE -> 0 : HOLD));
    holds(HELD_WHILE_OPEN, !is_open && outcome == OUTCOME_FAILED
                           || reserved == (stage == STAGE_DISPATCHING || stage == STAGE_RECONCILING -> HOLD : 0)
                              && exposed == (is_open && outcome == OUTCOME_UNKNOWN -> HOLD : 0));
    holds(HELD_IN_CONFLICT, is_open || outcome != OUTCOME_FAILED
                            || reserved == (contradicted -> HOLD : 0) && exposed == reserved);
    holds(READ_DUE, !(stage == STAGE_RECONCILING && !open_conflict) || purpose == READ_UNKNOWN && scheduled);
    holds(READ_DUE, !(outcome == OUTCOME_FAILED && reason == REASON_MANUAL && !conflict)
                    || watched || purpose == READ_WATCH)
}

/* Whether it is the end of the newest write attempt. */
#ifdef BREAK_PENDING
#define ends_flight(kind, seq) (seq == last_seq || said == OUTCOME_PENDING)
#else
#define ends_flight(kind, seq) ((kind == KIND_DISPATCH || kind == KIND_SWEEP) && seq == last_seq)
#endif

/* Once there was a replay no end of a write proves that nothing was done: another of them may have. */
#define proves_nothing(kind, said) (kind == KIND_DISPATCH && said == OUTCOME_FAILED && last_seq > 1)

/* What a word on an effect in conflict comes to: no settlement, but it is not left in flight for ever. */
#ifdef BREAK_CONFLICT_STAYS
#define in_conflict RESULT_EVIDENCE
#else
#define in_conflict (stage == STAGE_DISPATCHING -> RESULT_UNKNOWN : RESULT_EVIDENCE)
#endif

/* What was released and is found after all counts again (contradictions). */
inline rehold()
{
    if
    :: !is_open && outcome == OUTCOME_FAILED && released > 0 ->
        reserved = reserved + released;
        exposed = exposed + released;
        released = 0
    :: else
    fi
}

/* settle_batch, of one item. `part` is what a person says was consumed, else HOLD. */
mtype:result result;
mtype:mover by;
bit supported;
inline settle(kind, seq, said, why, part)
{
    supported = (why == REASON_MANUAL
        || why == REASON_PROVIDER_2XX && is_applied
        || why == REASON_PROVIDER_4XX && record == RECORD_NONE && writes[1] > 0
        || why == REASON_NEVER_LEFT && writes[1] + writes[SEQS] == 0
        || why == REASON_PROVIDER_RECORD && (said == OUTCOME_SUCCEEDED -> is_applied : record == RECORD_FAILED));
    result =
#ifndef BREAK_OVERWRITE
        (!is_open && (kind == KIND_MANUAL || kind == KIND_REJECT) -> RESULT_WRONG_STAGE :
        (!is_open && is_final(said) && outcome != said && !proves_nothing(kind, said) -> RESULT_CONFLICT :
        (!is_open -> RESULT_LATE :
#else
        (!is_open && !is_final(said) -> RESULT_LATE : (false -> RESULT_LATE : (false -> RESULT_LATE :
#endif
#ifndef BREAK_IN_FLIGHT
        (kind == KIND_MANUAL && in_flight_by(last_seq) -> RESULT_IN_FLIGHT :
#else
        (false -> RESULT_LATE :
#endif
        ((said == OUTCOME_NOT_DISPATCHED) != (stage == STAGE_READY) -> RESULT_WRONG_STAGE :
        (kind == KIND_SWEEP && (!timed || in_flight_by(last_seq)) -> RESULT_WRONG_STAGE :
        (open_conflict && kind != KIND_MANUAL -> in_conflict :
#ifndef BREAK_REPLAY_FAILS
        (proves_nothing(kind, said) -> RESULT_EVIDENCE :
#else
        (false -> RESULT_LATE :
#endif
        (is_final(said) || said == OUTCOME_NOT_DISPATCHED -> RESULT_SETTLED :
        (said == OUTCOME_UNKNOWN && stage == STAGE_DISPATCHING -> RESULT_UNKNOWN :
        (said == OUTCOME_PENDING && (stage == STAGE_DISPATCHING || outcome == OUTCOME_UNKNOWN) -> RESULT_PENDING :
        RESULT_EVIDENCE)))))))))));
    by = (kind == KIND_DISPATCH -> MOVER_DISPATCHER :
         (kind == KIND_RECONCILE -> MOVER_RECONCILER :
         (kind == KIND_MANUAL -> MOVER_PERSON :
         (why == REASON_CANCELLED -> MOVER_INGEST : MOVER_SWEEP))));
    if
    :: result == RESULT_SETTLED ->
        holds(SETTLED_BY_EVIDENCE_OR_A_PERSON, said == OUTCOME_NOT_DISPATCHED || supported);
        holds(NOT_RESOLVED_IN_FLIGHT, kind != KIND_MANUAL || !really_in_flight(1) && !really_in_flight(SEQS));
        if
        :: is_open -> move((said == OUTCOME_NOT_DISPATCHED -> STAGE_REJECTED : STAGE_SETTLED), by)
        :: else
        fi;
        if
        :: owner[1] != NONE ->
            exposed = exposed - (outcome == OUTCOME_UNKNOWN -> HOLD : 0);
            reserved = reserved - HOLD;
            consumed = consumed + (said == OUTCOME_SUCCEEDED -> part : 0);
            released = released + (said == OUTCOME_SUCCEEDED -> HOLD - part : HOLD)
        :: else
        fi;
        purpose = (why == REASON_PROVIDER_2XX -> READ_CONFIRM :
                  (why == REASON_MANUAL && said == OUTCOME_FAILED -> READ_WATCH : READ_NONE));
        scheduled = (purpose != READ_NONE);
        timed = 0;
        expired = 0;
        open_conflict = 0;
        if
        :: told == OUTCOME_PENDING -> told = said; told_reason = why
        :: else
        fi;
        outcome = said;
        reason = why
    :: result == RESULT_UNKNOWN ->
        move(STAGE_RECONCILING, by);
        outcome = OUTCOME_UNKNOWN;
        timed = 0;
        exposed = exposed + HOLD;
#ifdef BREAK_HOLD
        reserved = reserved - HOLD; released = released + HOLD;
#endif
#ifndef BREAK_READ
        purpose = (open_conflict -> purpose : READ_UNKNOWN); scheduled = !open_conflict
#endif
    :: result == RESULT_PENDING ->
        if
        :: stage == STAGE_DISPATCHING -> move(STAGE_RECONCILING, by); timed = 0
        :: else
        fi;
        exposed = exposed - (outcome == OUTCOME_UNKNOWN -> HOLD : 0);
        outcome = OUTCOME_PENDING;
        timed = (ends_flight(kind, seq) -> 0 : timed);
        purpose = READ_UNKNOWN; scheduled = 1
    :: result == RESULT_EVIDENCE && stage == STAGE_RECONCILING && ends_flight(kind, seq) ->
        timed = 0
    :: (result == RESULT_CONFLICT || result == RESULT_LATE) && kind == KIND_RECONCILE ->
        if
        :: result == RESULT_CONFLICT || said == OUTCOME_FAILED -> purpose = READ_NONE; scheduled = 0; watched = 1
        :: else
        fi
    :: else
    fi;
#ifndef BREAK_CONFLICT
    conflict = conflict || result == RESULT_CONFLICT;
#endif
    contradicted = contradicted || result == RESULT_CONFLICT && outcome == OUTCOME_FAILED;
#ifndef BREAK_REHOLD
    if
    :: result == RESULT_CONFLICT -> rehold()
    :: else
    fi;
#endif
    if
    :: kind == KIND_DISPATCH || kind == KIND_SWEEP && result != RESULT_WRONG_STAGE -> ended[seq] = 1
    :: else
    fi;
    holds(CONTRADICTION_MARKED, is_open || !is_final(said) || said == outcome || kind == KIND_MANUAL
                                || proves_nothing(kind, said) || conflict);
    check();
    forget(1);
    forget(SEQS);
    result = 0; by = 0; supported = 0 /* no part of the state */
}

/* The row of attempts, and the open row's share of it. */
inline attempt_make(seq, who)
{
    owner[seq] = who;
    expired = 0;
    ghost[seq] = 0; /* it would find nothing to claim */
    time[seq] = TIME_TO_SEND;
    last_seq = seq;
    timed = 1;
    ended[seq] = 0;
    orphan[seq] = (who == NOBODY)
}

#define is_claimable_now(s) (s == 1 -> is_claimable : is_replayable)
#define is_replayable (stage == STAGE_RECONCILING && outcome == OUTCOME_UNKNOWN && !open_conflict && \
                       !in_flight_by(1) && owner[SEQS] == NONE && replay_asked && !halted)
#ifdef BREAK_SECOND_CLAIM
#define is_claimable (!halted)
#elif defined(BREAK_HALT)
#define is_claimable (stage == STAGE_READY)
#else
#define is_claimable (stage == STAGE_READY && !halted)
#endif

inline claim_reject(for_what)
{
    move(STAGE_REJECTED, MOVER_DISPATCHER);
    outcome = OUTCOME_NOT_DISPATCHED;
    reason = for_what;
    expired = 0;
    told = outcome;
    told_reason = reason
}

/* claim_batch. `who` is whose try this is. */
inline claim(seq, who)
{
    if
    :: seq == 1 && is_claimable && expired -> claim_reject(REASON_EXPIRED)
    :: seq == 1 && is_claimable && !expired ->
#ifdef BREAK_SECOND_CLAIM
        if
        :: stage != STAGE_READY -> stage = STAGE_READY; reserved = 0
        :: else
        fi;
#endif
        move(STAGE_DISPATCHING, MOVER_DISPATCHER);
        reserved = HOLD;
        attempt_make(1, who)
#ifdef REPLAY
    :: seq == 2 && is_replayable -> attempt_make(2, who)
#endif
    :: else
    fi;
    check()
}

#ifdef BREAK_LATE
#define in_time(who) true
#else
#define in_time(who) (try[who] == IN_TIME)
#endif
#ifdef BREAK_CLOCK
#define may_pass(who) true
#else
#define may_pass(who) (who == NOBODY || try[who] == LATE)
#endif

/* This try knows the attempt for its own no more: it passed the gate, ended, or died. */
inline disown()
{
    if
    :: owner[seq] == me -> owner[seq] = NOBODY
    :: else
    fi;
    forget(seq)
}

/* gate_pass: leaves why == REASON_NONE when it opens. */
inline gate_ask()
{
    if
    :: asked == 0 && in_time(me) ->
        asked = 1;
        holds(GATE_SHUT_PAST_SEND_BY, time[seq] == TIME_TO_SEND);
        holds(QUIET_AFTER_HALT, !halted || quiet_later);
        why = REASON_NONE;
#ifndef BREAK_JOURNAL
        journaled[seq] = is_open;
#endif
        disown(); /* whose it is and its deadline matter no more */
        try[me] = NO_TRY
    :: else -> /* asked before, or late */
        asked = 1;
        said = OUTCOME_FAILED;
        why = REASON_NEVER_LEFT
    fi
}

#ifdef BREAK_FLOCK
#define is_left(s) (timed && last_seq == s)
#else
#define is_left(s) (timed && last_seq == s && orphan[s])
#endif

inline journal_free_early()
{
#ifdef BREAK_FREE
    journaled[seq] = 0
#else
    skip
#endif
}

#ifdef BREAK_CLAIM_ID
#define is_ours(s) (owner[s] != NONE)
#else
#define is_ours(s) (owner[s] == me)
#endif

inline no_answer()
{
#ifdef BREAK_CAUSE
    said = OUTCOME_FAILED; why = REASON_NEVER_LEFT /* "the connection died": it can't have left */
#else
    said = OUTCOME_UNKNOWN
#endif
}

/* Nobody reads this connection any more. */
inline hang_up()
{
    if
    :: listens[seq] ->
        listens[seq] = 0;
        line[seq] = (line[seq] == LINE_SENT -> LINE_SENT : LINE_FREE) /* it may still arrive */
    :: else
    fi
}

/* dispatcher/claim.c, gate.c, sender.c, settler.c: one thread's way with this effect. */
proctype dispatcher()
{
    byte seq;               /* of the attempt in hand */
    bit asked;              /* the gate's counter */
    mtype:outcome said;     /* what its end is reported as */
    mtype:reason why;

#ifdef REPLAY
    if
    :: atomic { me == 0 -> seq = 1; goto claimed }
    :: atomic { me != 0 -> goto idle }
    fi;
#endif
idle:
    atomic { said = 0; why = 0; asked = 0; seq = 0; try[me] = NO_TRY };
end: /* a message arrives: the first, another copy, or one of long ago */
    if
#ifndef REPLAY
    :: atomic { seq = 1; try[me] = IN_TIME; goto asking }
#else
    :: atomic { me != 0 && replay_asked -> seq = 2; try[me] = IN_TIME; goto asking }
#endif
    fi;

asking: /* the transaction is on its way, with a claim_id of its own */
    if
    :: atomic {
           true -> claim(seq, me);
           if
           :: owner[seq] == me -> goto claimed
           :: else -> goto idle /* not ready, held, expired */
           fi
       }
    :: atomic { seq == 1 && is_claimable -> claim_reject(REASON_REFUSED); check(); goto idle } /* by a limit */
    :: atomic { true -> claim(seq, me); goto doubtful } /* the answer to COMMIT is lost */
    :: atomic { goto doubtful } /* rolled back, and that answer is lost */
    :: atomic { is_claimable_now(seq) -> ghost[seq] = 1; goto doubtful } /* the server has not even begun */
    :: atomic { goto idle } /* rolled back, and said so; or dead before anything was sent */
    :: atomic { is_claimable_now(seq) -> ghost[seq] = 1; goto idle } /* dead */
    fi;

doubtful: /* claim_recover: the rows are locked, so the doubtful transaction has ended or not begun */
    if
    :: atomic { is_ours(seq) -> goto claimed }
    :: atomic { is_ours(seq) -> goto dead }
    :: atomic { !is_ours(seq) -> goto idle }
    fi;

claimed: /* ours: to be filled, given to the transport, and past the gate once there is a connection */
    if
    :: atomic {
           true -> gate_ask();
           if
           :: why == REASON_NONE -> goto writing
           :: else -> goto report
           fi
       }
    :: atomic { said = OUTCOME_FAILED; why = REASON_NEVER_LEFT; goto report } /* it can't be made or sent */
    :: atomic { goto dead }
    fi;

writing: /* the gate is open. The residue: a process stopped here may write past send_by */
    if
    :: atomic {
           writes[seq]++;
           line[seq] = LINE_SENT;
           listens[seq] = 1;
           holds(ONE_WRITE_AN_ATTEMPT, writes[seq] == 1);
#ifdef RESIDUE
           holds(NOTHING_WRITTEN_PAST_SEND_BY, time[seq] == TIME_TO_SEND);
#endif
           check();
           goto waiting
       }
    :: atomic { said = OUTCOME_UNKNOWN; goto report } /* the connection died first; who can tell */
    :: atomic { goto dead }
    fi;

waiting: /* for the answer */
#ifdef BREAK_JOURNAL
    if
    :: journaled[seq] = 1
    :: atomic { goto dead }
    fi;
#endif
    if
    :: atomic {
           line[seq] != LINE_FREE && line[seq] != LINE_SENT ->
           said = (line[seq] == LINE_2XX -> OUTCOME_SUCCEEDED :
                  (line[seq] == LINE_PENDING -> OUTCOME_PENDING : OUTCOME_FAILED));
           why = (line[seq] == LINE_2XX -> REASON_PROVIDER_2XX :
                 (line[seq] == LINE_PENDING -> REASON_NONE :
                 (line[seq] == LINE_4XX -> REASON_PROVIDER_4XX : REASON_PROVIDER_RECORD)));
           goto report
       }
    :: atomic { no_answer(); goto report } /* out of time, cut short, garbage, 408, 409, 3xx, 5xx */
    :: atomic { /* the connection died without an answer: libcurl would send again, and asks the gate */
           true ->
#ifdef BREAK_GATE
           asked = 0; try[me] = IN_TIME;
#endif
           gate_ask();
           if
           :: why == REASON_NONE -> goto writing
           :: else -> said = OUTCOME_UNKNOWN; why = REASON_NONE; goto report /* it was open once */
           fi
       }
    :: atomic { goto dead }
    fi;

report: /* settle_batch, again for as long as its COMMIT is in doubt */
    atomic { hang_up(); disown(); try[me] = NO_TRY; asked = 0; journal_free_early() };
again:
    if
    :: atomic {
           settle(KIND_DISPATCH, seq, said, why, HOLD);
           if
           :: journaled[seq] = 0; goto idle
           :: goto again
           fi
       }
    :: atomic {
           why == REASON_PROVIDER_2XX || why == REASON_PROVIDER_4XX -> /* it can't be stored */
           said = OUTCOME_UNKNOWN; why = REASON_NONE; goto again
       }
    :: atomic { goto dead }
    fi;

dead: /* and started again */
    atomic {
        hang_up();
        disown();
        orphan[seq] = (timed && last_seq == seq);
        goto idle
    }
}

/* A claim whose client has gone may still be run by the server. */
proctype database()
{
end:
    do
    :: d_step { ghost[1] -> ghost[1] = 0; claim(1, NOBODY) }
#ifdef REPLAY
    :: d_step { ghost[2] -> ghost[2] = 0; claim(2, NOBODY) }
#endif
    od
}

/* dispatcher/recover.c: what dead processes left, by the journals they left. */
inline recover(seq)
{
    atomic {
        is_left(seq);
        if
        :: !journaled[seq] -> said = OUTCOME_FAILED; why = REASON_NEVER_LEFT
        :: said = OUTCOME_UNKNOWN; why = REASON_NONE /* it may have left, or the journal proves nothing */
        fi;
        settle(KIND_DISPATCH, seq, said, why, HOLD);
        orphan[seq] = 0; said = 0; why = 0
    }
}

proctype recovery()
{
    bit dozes;
    mtype:outcome said;
    mtype:reason why;
end:
    do
    :: recover(1)
#ifdef REPLAY
    :: recover(2)
#endif
#ifdef LIVE
    :: dozes = !dozes /* it need not ever be started again */
#endif
    od
}

/* ---------------------------------------------------------------- the provider */

/* What it makes of a request; `answer` is what it says, if that is heard. */
inline take(seq, becomes, answer)
{
    d_step {
        line[seq] == LINE_SENT && record == RECORD_NONE ->
        record = becomes;
        applied = applied + (becomes == RECORD_APPLIED || becomes == RECORD_TWICE -> 1 : 0);
        line[seq] = (listens[seq] -> answer : LINE_FREE);
        check()
    }
}

inline serve(seq)
{
    if
    :: take(seq, RECORD_APPLIED, LINE_2XX)
#ifdef ALL
    :: take(seq, RECORD_FAILED, LINE_FAILED)
    :: take(seq, RECORD_TWICE, LINE_2XX) /* a proxy in front of it doubled the write */
#endif
    :: take(seq, RECORD_PENDING, LINE_PENDING)
    :: take(seq, RECORD_NONE, LINE_4XX)
    :: d_step { line[seq] == LINE_SENT && record != RECORD_NONE -> /* the key is known: the same answer */
#ifdef BREAK_REPLAY_KEY
           applied++;
#endif
           holds(APPLIED_ONCE, applied <= 1);
           line[seq] = (!listens[seq] -> LINE_FREE :
                       (record == RECORD_PENDING -> LINE_PENDING :
                       (record == RECORD_FAILED -> LINE_FAILED : LINE_2XX))) }
    :: d_step { line[seq] == LINE_SENT -> line[seq] = LINE_FREE } /* it never arrives */
    :: d_step { line[seq] != LINE_SENT && line[seq] != LINE_FREE -> line[seq] = LINE_FREE } /* it is lost */
    fi
}

proctype provider()
{
end:
    do
    :: serve(1)
#ifdef REPLAY
    :: serve(2)
#endif
    :: d_step { record == RECORD_PENDING -> record = RECORD_APPLIED; applied++; check() }
    :: d_step { record == RECORD_PENDING -> record = RECORD_FAILED }
    od
}

/* ---------------------------------------------------------------- the reconciler */

/* A read that settled nothing: the next is due, or a confirming or watching one was the last. */
inline read_ended()
{
    if
    :: purpose != READ_NONE -> scheduled = 1
#ifdef ALL
    :: purpose == READ_CONFIRM || purpose == READ_WATCH ->
        watched = (purpose == READ_WATCH -> 1 : watched);
        purpose = READ_NONE;
        scheduled = 0
#endif
    :: purpose == READ_NONE
    fi
}

/* What a read found, and what was so when it began. It may be written at any later time, twice, or never. */
inline find(what)
{
    found = what;
    open_seen = (what != READ_MATCH && is_open);
    confirming = (what == READ_MATCH && !is_open && purpose == READ_CONFIRM)
}

#ifdef ALL
#define is_worth_a_read true
#else
#define is_worth_a_read (record != RECORD_NONE)
#endif

#ifdef BREAK_NOT_FOUND
#define settles (found == READ_NOT_FOUND && open_seen)
#else
#define settles (found == READ_MATCH && !confirming || found == READ_PROVIDER_FAILED || \
                 found == READ_NOT_FINAL && open_seen)
#endif

proctype reconciler()
{
    mtype:read found;
    mtype:outcome said;
    bit open_seen, confirming;

idle:
    atomic { found = 0; open_seen = 0; confirming = 0 };
end:
    atomic {
        purpose != READ_NONE && is_worth_a_read;
        if
#ifdef ALL
        :: find(READ_NOT_FOUND) /* there is none, or the provider's listing lags behind */
#endif
        :: is_applied -> find(READ_MATCH)
        :: record == RECORD_TWICE -> find(READ_CONFLICT)
        :: record == RECORD_PENDING -> find(READ_NOT_FINAL)
        :: record == RECORD_FAILED -> find(READ_PROVIDER_FAILED)
        fi /* no usable answer changes nothing */
    };

again:
    if
    :: atomic {
           if
           :: found == READ_CONFLICT -> /* conflict_mark */
               conflict = 1;
               open_conflict = is_open;
               contradicted = contradicted || !is_open && outcome == OUTCOME_FAILED;
               rehold();
               purpose = (is_open -> purpose : READ_NONE);
               scheduled = 0
           :: found == READ_MATCH && confirming -> /* confirm_batch */
               purpose = READ_NONE;
               scheduled = 0
           :: settles ->
               said = (found == READ_MATCH -> OUTCOME_SUCCEEDED :
                      (found == READ_NOT_FINAL -> OUTCOME_PENDING : OUTCOME_FAILED));
               settle(KIND_RECONCILE, 0, said, REASON_PROVIDER_RECORD, HOLD);
               said = 0
           :: (found == READ_NOT_FOUND || found == READ_NOT_FINAL) && !settles
           fi;
           if
           :: found == READ_NOT_FOUND || found == READ_NOT_FINAL -> read_ended()
           :: else
           fi;
           check();
           if
           :: goto idle
           :: goto again /* its COMMIT was in doubt, or another has read the same */
           fi
       }
    :: atomic { goto idle } /* dead */
    fi
}

/* ---------------------------------------------------------------- the others */

proctype scheduler()
{
end:
    do
    :: d_step { timed && time[last_seq] == TIME_OVER && (stage == STAGE_DISPATCHING || stage == STAGE_RECONCILING) ->
#ifdef BREAK_SWEEP
           skip
#elif !defined(BREAK_SWEEP_SETTLES)
           settle(KIND_SWEEP, last_seq, OUTCOME_UNKNOWN, REASON_NONE, HOLD)
#else
           settle(KIND_SWEEP, last_seq, OUTCOME_FAILED, REASON_NEVER_LEFT, HOLD)
#endif
       }
    :: d_step { stage == STAGE_READY && expired ->
           settle(KIND_REJECT, 0, OUTCOME_NOT_DISPATCHED, REASON_EXPIRED, HOLD) }
    od
}

#define is_replay_wanted (stage == STAGE_RECONCILING && outcome == OUTCOME_UNKNOWN && last_seq == 1 && \
                          !replay_asked && !open_conflict && !in_flight_by(1))

/* reconcile_ask: where no read is due a row is made for this one. */
inline read_ask()
{
    d_step { (stage == STAGE_DISPATCHING || stage == STAGE_RECONCILING) && !in_flight_by(last_seq) &&
             purpose == READ_NONE -> purpose = READ_UNKNOWN; scheduled = 0; check() }
}

/* A person decides, when nothing can be answered any more; and cancels, reads and replays on demand. */
proctype person()
{
    bit dozes;
    mtype:outcome said;
    byte part = HOLD; /* of the hold: what the person says was consumed */
end:
    do
    :: d_step { stage == STAGE_READY -> settle(KIND_REJECT, 0, OUTCOME_NOT_DISPATCHED, REASON_CANCELLED, HOLD) }
    :: atomic {
           is_open && stage != STAGE_READY;
           if
           :: said = OUTCOME_FAILED
           :: said = OUTCOME_SUCCEEDED
#ifdef ALL
           :: said = OUTCOME_SUCCEEDED; part = 1
#endif
           fi;
           settle(KIND_MANUAL, 0, said, REASON_MANUAL, part);
           said = 0; part = HOLD
       }
    :: read_ask()
#ifdef REPLAY
    :: d_step { is_replay_wanted -> replay_asked = 1 }
#endif
#ifdef LIVE
    :: dozes = !dozes /* nobody need ever look */
#endif
    od
}

/* What was claimed may leave until its send_by. For a dispatch the code asks the open row (nobody but its own worker
 * can settle an effect before send_by). A replay outlives its open row, where something else settles the effect
 * meanwhile: so of replays it asks the attempts. */
#ifdef BREAK_QUIET
#define may_leave (is_open && timed && time[last_seq] == TIME_TO_SEND)
#else
#define may_leave (is_open && timed && time[last_seq] == TIME_TO_SEND \
                   || SEQS > 1 && owner[SEQS] != NONE && time[SEQS] == TIME_TO_SEND)
#endif

/* Halt answers when nothing new can be claimed any more, and says until when what was claimed may leave. */
proctype operator()
{
end:
    do
    :: d_step { !halted -> halted = 1; quiet_later = may_leave }
    :: d_step { halted -> halted = 0; quiet_later = 0 }
    od
}

/* A worker's own deadline runs from before its BEGIN, the database's from after it: that one passes later. */
inline pass(seq)
{
    if
    :: atomic { owner[seq] != NONE && time[seq] == TIME_TO_SEND && may_pass(owner[seq]) ->
           time[seq] = TIME_TO_ANSWER }
    :: atomic { time[seq] == TIME_TO_ANSWER -> time[seq] = TIME_OVER }
    fi
}

/* Whether it makes a difference that this try's deadline passes. */
#define matters(who) (is_claimable_now(1) || is_claimable_now(SEQS) || owner[1] == who || owner[SEQS] == who)

proctype clock()
{
end:
    do
    :: d_step { try[0] == IN_TIME && matters(0) -> try[0] = LATE }
    :: d_step { try[1] == IN_TIME && matters(1) -> try[1] = LATE }
    :: pass(1)
#ifdef REPLAY
    :: pass(2)
#endif
    od
}

/* dispatch_before passes. */
proctype calendar()
{
end:
    do
    :: d_step { stage == STAGE_READY && !expired -> expired = 1 }
    od
}

/* What must be possible, or the rest would say nothing: a line that is never reached fails the run. */
proctype witness()
{
end:
    do
    :: reason == REASON_PROVIDER_2XX
    :: reason == REASON_PROVIDER_4XX
    :: reason == REASON_NEVER_LEFT
    :: reason == REASON_PROVIDER_RECORD && outcome == OUTCOME_SUCCEEDED
    :: reason == REASON_PROVIDER_RECORD && outcome == OUTCOME_FAILED
    :: reason == REASON_MANUAL && outcome == OUTCOME_SUCCEEDED && !is_applied
    :: reason == REASON_MANUAL && outcome == OUTCOME_FAILED && is_applied && !conflict /* not found yet */
    :: reason == REASON_MANUAL && outcome == OUTCOME_FAILED && is_applied && conflict
    :: reason == REASON_MANUAL && outcome == OUTCOME_SUCCEEDED && conflict
    :: stage == STAGE_RECONCILING && outcome == OUTCOME_UNKNOWN && writes[1] == 0 && !timed
    :: stage == STAGE_RECONCILING && outcome == OUTCOME_PENDING
    :: purpose == READ_CONFIRM
    :: purpose == READ_WATCH
    :: line[1] == LINE_SENT && time[1] == TIME_OVER && !is_open
    :: halted && quiet_later
#ifdef REPLAY
    :: writes[1] == 1 && writes[2] == 1 && applied == 1 && stage == STAGE_SETTLED
    :: writes[1] == 0 && writes[2] == 1 && reason == REASON_PROVIDER_2XX
    :: last_seq == 2 && timed && outcome == OUTCOME_PENDING
    :: last_seq == 2 && reason == REASON_PROVIDER_RECORD && outcome == OUTCOME_FAILED
    :: last_seq == 2 && line[1] == LINE_SENT && record != RECORD_NONE
#else
    :: reason == REASON_REFUSED
    :: reason == REASON_EXPIRED
    :: reason == REASON_CANCELLED
    :: halted && stage == STAGE_READY
    :: conflict && is_open && stage == STAGE_RECONCILING && outcome == OUTCOME_UNKNOWN
    :: stage == STAGE_RECONCILING && open_conflict && timed == 0 && purpose == READ_UNKNOWN && !scheduled
    :: consumed == 1 && released == 1
    :: watched && outcome == OUTCOME_FAILED && is_applied && !conflict /* watched to the end, and missed */
#endif
    od
}

init
{
    atomic {
#ifdef REPLAY
        try[0] = IN_TIME; /* begins with a claimed effect: attempt 1 has no other beginning here */
        claim(1, 0);
#endif
        run dispatcher();
#ifndef LIVE
        run dispatcher();
        run witness();
#endif
        run recovery();
        run database();
        run provider();
        run reconciler();
        run scheduler();
        run person();
        run clock();
        run calendar();
        run operator()
    }
}

#ifdef LIVE
/* Whatever is accepted and whoever dies: it is settled, rejected, or known to be open with a read due. */
ltl gets_on { <> (stage != STAGE_READY && stage != STAGE_DISPATCHING) }
#endif
