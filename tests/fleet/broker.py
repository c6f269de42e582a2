"""A fleet's Kafka, seen from outside: what is in a topic, how far a group is, and putting it back."""

import json

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from harness import wait_until

EFFECTS = "holdfast.effects"  # the topic, and the group that reads it
RECONCILE = "holdfast.reconcile"
DEAD_LETTERS = "holdfast.dlq"


class Broker:
    def __init__(self, fleet):
        self.servers = fleet.env["HOLDFAST_KAFKA_BROKERS"]

    @property
    def admin(self):
        """A new client each time: an old one may still be asking a broker that was killed."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def partitions(self, topic):
        return sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def offsets(self, topic, spec):
        admin = self.admin
        asked = {TopicPartition(topic, p): spec for p in self.partitions(topic)}
        return {at.partition: future.result().offset for at, future in admin.list_offsets(asked).items()}

    def ends(self, topic=EFFECTS):
        """The next offset of each partition."""
        return self.offsets(topic, OffsetSpec.latest())

    def committed(self, group=EFFECTS, topic=EFFECTS):
        """What the group has decided, by partition; negative where it never was."""
        admin = self.admin
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in self.partitions(topic)])]
        (future,) = admin.list_consumer_group_offsets(asked).values()
        return {at.partition: at.offset for at in future.result().topic_partitions}

    def rewind(self, group=EFFECTS, topic=EFFECTS):
        """Puts the group back to the earliest offsets; none of its members may be running."""
        admin = self.admin
        first = self.offsets(topic, OffsetSpec.earliest())
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, o) for p, o in first.items()])

        def altered():
            (future,) = admin.alter_consumer_group_offsets([wanted]).values()
            try:
                return all(at.error is None for at in future.result().topic_partitions)
            except Exception:  # the members that were killed are still counted for a moment
                return False

        wait_until(altered, 30, 0.3, what="the group without members")
        assert self.committed(group, topic) == first
        return first

    def caught_up(self, group=EFFECTS, topic=EFFECTS):
        """Whether everything in the topic is decided."""
        committed = self.committed(group, topic)
        return all(committed[p] >= end or end == 0 for p, end in self.ends(topic).items())

    def produce(self, values, topic=EFFECTS, partition=0):
        """Writes these payloads into one partition, in order; gives their offsets."""
        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2 << 20, "log_level": 0})
        offsets = []
        for value in values:
            def told(error, message):
                assert error is None, error
                offsets.append(message.offset())
            producer.produce(topic, value, partition=partition, on_delivery=told)
        producer.flush(20)
        assert len(offsets) == len(values)
        return offsets

    def read(self, topic=DEAD_LETTERS):
        """Everything in a topic, as JSON."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test", "enable.auto.commit": False,
                             "log_level": 0})
        try:
            ends = self.ends(topic)
            consumer.assign([TopicPartition(topic, p, 0) for p in ends])
            found = []
            while len(found) < sum(ends.values()):
                message = consumer.poll(10)
                assert message is not None and message.error() is None, message
                found.append(json.loads(message.value()))
            return found
        finally:
            consumer.close()
