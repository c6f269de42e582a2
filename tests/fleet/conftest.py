"""Fleets for tests: one that all of them share, and private ones with other settings."""

import signal

import pytest

from harness import Fleet
from protocol import Database


def pytest_configure(config):
    """TERM ends a run as Ctrl-C does, so that every fleet is ended by its fixture."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@pytest.fixture(scope="session")
def fleet(request):
    """The shared fleet: one of each part, real Kafka. A test leaves it running and its faults cleared."""
    shared = Fleet("shared")
    failed_before = request.session.testsfailed
    try:
        yield shared.up()
    finally:
        shared.end(keep=request.session.testsfailed > failed_before)


@pytest.fixture(autouse=True)
def sandbox_is_clean(request):
    """Rules that a test gave the shared fleet's sandbox end with the test; counts stay."""
    yield
    if "fleet" in request.fixturenames:
        request.getfixturevalue("fleet").sandbox.control("DELETE", "/faults")


@pytest.fixture
def make_fleet(request):
    """Starts private fleets: make_fleet("name", broker="kafka", settings={...}, dispatchers=2)."""
    made = []
    failed_before = request.session.testsfailed

    def make(name="private", **options):
        private = Fleet(name, **options)
        made.append(private)
        return private.up()

    yield make
    failed = request.session.testsfailed > failed_before
    errors = []
    for private in reversed(made):
        try:
            private.end(keep=failed)
        except Exception as error:  # the others must be ended too
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture(scope="session")
def servers():
    """A fleet without services, for tests of the database alone."""
    lent = Fleet("servers", broker="embedded", ingests=0, dispatchers=0, reconcilers=0, schedulers=0)
    try:
        yield lent.up()
    finally:
        lent.end()


@pytest.fixture(scope="module")
def database(servers):
    """A migrated database for the tests of one file."""
    made = Database(servers)
    yield made
    made.end()


@pytest.fixture(scope="module")
def db(database):
    """A session under the services' role."""
    return database.caller()


@pytest.fixture
def env(db):
    """An environment that no other test has touched."""
    return db.environment()


@pytest.fixture
def clock(database):
    """Moves the database's time for one test: clock("1 day")."""
    yield database.move_clock
    database.move_clock("0")
