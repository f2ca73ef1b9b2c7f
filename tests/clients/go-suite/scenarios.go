package suite

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// scenario is one row of the list in tests/clients/README.md, with what it does.
type scenario struct {
	name string
	body func(*run)
}

var scenarios = []scenario{
	{"create-topic", createTopic},
	{"produce-sync", produceSync},
	{"produce-async", produceAsync},
	{"codec-none", codec("none")},
	{"codec-gzip", codec("gzip")},
	{"codec-snappy", codec("snappy")},
	{"codec-lz4", codec("lz4")},
	{"codec-zstd", codec("zstd")},
	{"acks-0", acks(0)},
	{"acks-1", acks(1)},
	{"acks-all", acks(-1)},
	{"idempotent", idempotent},
	{"large-record", largeRecord},
	{"oversize-record", oversizeRecord},
	{"empty-and-null", emptyAndNull},
	{"headers", headers},
	{"many-partitions", manyPartitions},
	{"consume-earliest", consumeEarliest},
	{"consume-latest", consumeLatest},
	{"consume-timestamp", consumeTimestamp},
	{"consume-offset", consumeOffset},
	{"long-poll", longPoll},
	{"delete-recreate", deleteRecreate},
	{"unknown-topic", unknownTopic},
	{"admin", admin},
}

// partitions is what a scenario's topic has unless the scenario needs another number.
const partitions = 4

var acksAll = ProducerOptions{Acks: -1, Codec: "none"}

// expectOffsets checks the offsets that acknowledgements carried, on a topic that was empty before.
func (r *run) expectOffsets(records []*Record) {
	next := make(map[int32]int64)
	for _, record := range records {
		if record.Offset != next[record.Partition] {
			r.fail("partition %d acknowledged offset %d, expected %d",
				record.Partition, record.Offset, next[record.Partition])
		}
		next[record.Partition]++
	}
}

// numbered makes count distinct records spread over the first partitions in turn.
func numbered(count int, partitions int32) []*Record {
	records := make([]*Record, count)
	for i := range records {
		records[i] = &Record{
			Partition: int32(i) % partitions,
			Key:       fmt.Appendf(nil, "key-%06d", i),
			Value:     fmt.Appendf(nil, "value-%06d", i),
			Headers:   []Header{{"index", fmt.Append(nil, i)}},
		}
	}
	return records
}

func createTopic(r *run) {
	r.create(partitions, map[string]string{"retention.ms": "3600000"})
	r.expectConfig("retention.ms", Config{Value: "3600000"})
	r.expectCode(r.CreateTopic(r.ctx, r.topic, partitions, nil), TopicAlreadyExists, "create it again")
}

func (r *run) expectConfig(key string, want Config) {
	r.eventually("describe config", func() error {
		config, err := r.DescribeConfig(r.ctx, r.topic, key)
		if err == nil && config != want {
			err = fmt.Errorf("%s is %+v, expected %+v", key, config, want)
		}
		return err
	})
}

func produceSync(r *run) {
	r.create(partitions, nil)
	records := numbered(100, 1)
	r.produce(ProducerOptions{Acks: -1, Codec: "none", OneByOne: true}, records)
	r.expectOffsets(records)
	r.verify(records)
}

func produceAsync(r *run) {
	r.create(partitions, nil)
	records := numbered(10_000, partitions)
	for _, record := range records {
		record.Value = append(record.Value, bytes.Repeat([]byte("."), 80)...)
	}
	r.produce(acksAll, records)
	r.expectOffsets(records)
	r.verify(records)
}

func codec(name string) func(*run) {
	return func(r *run) {
		r.create(partitions, nil)
		records := numbered(1_000, 1)
		var sent int64
		for _, record := range records {
			record.Value = append(record.Value, bytes.Repeat([]byte("corelane "), 21)...)
			sent += int64(len(record.Value))
		}
		r.produce(ProducerOptions{Acks: -1, Codec: name}, records)
		r.expectOffsets(records)
		r.verify(records)
		batch, err := r.StoredBatch(r.ctx, r.topic, 0)
		r.must(err, "look at the stored batch")
		if batch.Codec != name {
			r.fail("stored with codec %s, expected %s", batch.Codec, name)
		}
		size, err := r.LogDirBytes(r.ctx, r.topic)
		r.must(err, "describe log dirs")
		if name != "none" && size >= sent/2 {
			r.fail("%d bytes take %d in the log", sent, size)
		}
	}
}

func acks(level int16) func(*run) {
	return func(r *run) {
		r.create(partitions, nil)
		records := numbered(100, 1)
		r.produce(ProducerOptions{Acks: level, Codec: "none"}, records)
		if level != 0 { // without acknowledgements no client learns an offset
			r.expectOffsets(records)
		}
		r.verify(records)
	}
}

func idempotent(r *run) {
	r.create(partitions, nil)
	records := numbered(1_000, 1)
	r.produce(ProducerOptions{Acks: -1, Codec: "none", Idempotent: true, SmallBatch: true}, records)
	r.expectOffsets(records)
	r.verify(records)
	batch, err := r.StoredBatch(r.ctx, r.topic, 0)
	r.must(err, "look at the stored batch")
	if batch.ProducerID < 0 {
		r.fail("stored without a producer id")
	}
}

func largeRecord(r *run) {
	r.create(partitions, nil)
	records := numbered(3, 1)
	for _, record := range records {
		record.Value = randomBytes(900 << 10)
	}
	r.produce(acksAll, records)
	r.verify(records)
}

func oversizeRecord(r *run) {
	r.create(partitions, map[string]string{"max.message.bytes": "10000"})
	records := numbered(2, 1)
	records[0].Value = randomBytes(20_000)
	outcomes := r.Produce(r.ctx, r.topic, ProducerOptions{Acks: -1, Codec: "none", OneByOne: true}, records)
	r.expectCode(outcomes[0], MessageTooLarge, "produce 20,000 bytes where 10,000 is the limit")
	r.must(outcomes[1], "produce the next record")
	r.expectOffsets(records[1:])
	r.verify(records[1:])
}

func emptyAndNull(r *run) {
	r.create(partitions, nil)
	empty := []byte{}
	records := []*Record{
		{Key: nil, Value: []byte("v")},
		{Key: empty, Value: []byte("v")},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("k"), Value: empty},
		{Key: nil, Value: nil},
		{Key: empty, Value: empty},
	}
	r.produce(acksAll, records)
	r.verify(records)
}

func headers(r *run) {
	r.create(partitions, nil)
	records := numbered(3, 1)
	records[0].Headers = nil
	records[1].Headers = []Header{
		{"a", []byte("1")}, {"b", []byte{}}, {"a", []byte("2")}, {"bin", []byte{0x00, 0xff, 0x80, 0x7f}},
		{"n", nil},
	}
	records[2].Headers = []Header{{"clé", []byte("valeur")}}
	r.produce(acksAll, records)
	r.verify(records)
}

func manyPartitions(r *run) {
	const count = 1_000
	r.create(count, nil)
	records := numbered(sample, sample)
	for _, record := range records {
		record.Partition *= count / sample
	}
	r.produce(acksAll, records)
	r.expectOffsets(records)
	r.verify(records)
	r.must(r.DeleteTopic(r.ctx, r.topic), "delete the topic")
}

func consumeEarliest(r *run) {
	r.create(partitions, nil)
	records := numbered(100, 1)
	r.produce(acksAll, records)
	r.verify(records)
}

func consumeLatest(r *run) {
	r.create(partitions, nil)
	r.produce(acksAll, numbered(50, 1))
	consumer, err := r.Consume(r.ctx, r.topic, map[int32]Start{0: {Kind: FromLatest}})
	r.must(err, "open consumer")
	defer consumer.Close()
	r.eventually("settle the position", func() error {
		if consumer.Fetches() == 0 { // the first fetch needs a position
			return errors.New("no fetch was sent")
		}
		return nil
	})
	later := numbered(60, 1)[50:]
	r.produce(acksAll, later)
	r.same(r.take(consumer, 10), later, 50)
}

func consumeTimestamp(r *run) {
	r.create(partitions, nil)
	records := numbered(100, 1)
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, record := range records {
		record.Timestamp = base.Add(time.Duration(i) * time.Second)
	}
	r.produce(acksAll, records)
	for _, look := range []struct {
		after time.Duration
		want  int64
	}{
		{49_500 * time.Millisecond, 50},
		{50_000 * time.Millisecond, 50},
		{-1 * time.Millisecond, 0},
		{99_001 * time.Millisecond, NoOffset},
	} {
		offset, err := r.OffsetAfter(r.ctx, r.topic, 0, base.Add(look.after))
		r.must(err, "look up an offset by time")
		if offset != look.want {
			r.fail("the offset %v after the first record is %d, expected %d", look.after, offset, look.want)
		}
	}
	start := Start{Kind: FromTime, Time: base.Add(49_500 * time.Millisecond)}
	r.same(r.readBack(map[int32]Start{0: start}, 50), records[50:], 50)
}

func consumeOffset(r *run) {
	r.create(partitions, nil)
	records := numbered(100, 1)
	r.produce(acksAll, records)
	consumer, err := r.Consume(r.ctx, r.topic, map[int32]Start{0: {Kind: FromOffset, Offset: 37}})
	r.must(err, "open consumer")
	defer consumer.Close()
	r.same(r.take(consumer, 63), records[37:], 37)
	r.must(consumer.Seek(r.ctx, 0, 5), "seek")
	r.same(r.take(consumer, 95), records[5:], 5)

	beyond, err := r.Consume(r.ctx, r.topic, map[int32]Start{0: {Kind: FromOffset, Offset: 1_000}})
	if err == nil {
		defer beyond.Close()
		_, err = beyond.Next(r.ctx)
	}
	r.expectCode(err, OffsetOutOfRange, "consume from offset 1,000 of 100")
}

// longPoll counts the requests of an idle consumer. Waiting 500 ms each it needs about 6 in 3 s; a
// broker that does not wait makes it send thousands.
func longPoll(r *run) {
	const idle, fetchLimit, wakeLimit = 3 * time.Second, 60, 10 * time.Second
	r.create(1, nil)
	consumer, err := r.Consume(r.ctx, r.topic, map[int32]Start{0: {Kind: FromEarliest}})
	r.must(err, "open consumer")
	defer consumer.Close()
	type outcome struct {
		records []*Record
		err     error
	}
	woken := make(chan outcome, 1)
	go func() {
		records, err := consumer.Next(r.ctx)
		woken <- outcome{records, err}
	}()
	select {
	case o := <-woken:
		r.fail("a consumer of an empty topic returned %d records, error %v", len(o.records), o.err)
	case <-time.After(idle):
	}
	if sent := consumer.Fetches(); sent < 1 || sent > fetchLimit {
		r.fail("%d fetch requests in %v of idling, expected 1 to %d", sent, idle, fetchLimit)
	}
	records := numbered(1, 1)
	r.produce(acksAll, records)
	select {
	case o := <-woken:
		r.must(o.err, "consume the record produced meanwhile")
		r.same(o.records, records, 0)
	case <-time.After(wakeLimit):
		r.fail("the consumer got nothing within %v", wakeLimit)
	}
}

func deleteRecreate(r *run) {
	r.create(partitions, nil)
	r.produce(acksAll, numbered(10, 1))
	r.must(r.DeleteTopic(r.ctx, r.topic), "delete the topic")
	r.eventually("wait for the end of the topic", func() error {
		found, err := r.DescribeTopic(r.ctx, r.topic)
		switch {
		case err == nil:
			return fmt.Errorf("still described with %d partitions", len(found))
		case r.Code(err) == UnknownTopicOrPartition:
			return nil
		default:
			return err
		}
	})
	r.eventually("create it again", func() error { return r.CreateTopic(r.ctx, r.topic, partitions, nil) })
	r.awaitTopic(partitions)
	for partition := range int32(partitions) {
		r.expectSpan(partition, 0, 0)
	}
	records := numbered(1, 1)
	records[0].Value = []byte("new")
	r.produce(acksAll, records)
	r.expectOffsets(records)
	r.verify(records)
}

func unknownTopic(r *run) {
	_, err := r.DescribeTopic(r.ctx, r.topic)
	r.expectCode(err, UnknownTopicOrPartition, "describe")
	outcomes := r.Produce(r.ctx, r.topic, acksAll, numbered(1, 1))
	r.expectCode(outcomes[0], UnknownTopicOrPartition, "produce")
	consumer, err := r.Consume(r.ctx, r.topic, map[int32]Start{0: {Kind: FromEarliest}})
	if err == nil {
		defer consumer.Close()
		_, err = consumer.Next(r.ctx)
	}
	r.expectCode(err, UnknownTopicOrPartition, "consume")
	topics, err := r.ListTopics(r.ctx)
	r.must(err, "list topics")
	if slices.Contains(topics, r.topic) {
		r.fail("asking for the topic created it")
	}
}

func admin(r *run) {
	cluster, err := r.DescribeCluster(r.ctx)
	r.must(err, "describe cluster")
	if cluster.ID == "" || !slices.Contains(cluster.Brokers, cluster.Controller) {
		r.fail("cluster %q has controller %d among brokers %v", cluster.ID, cluster.Controller, cluster.Brokers)
	}
	r.create(partitions, nil)
	topics, err := r.ListTopics(r.ctx)
	r.must(err, "list topics")
	if !slices.Contains(topics, r.topic) {
		r.fail("%s is not among the %d topics", r.topic, len(topics))
	}
	adminConfigs(r)
	r.must(r.CreatePartitions(r.ctx, r.topic, 6), "create partitions")
	r.awaitTopic(6)
	adminRecords(r)
}

func adminConfigs(r *run) {
	r.expectConfig("max.message.bytes", Config{"1048588", true})
	value := "123456789"
	r.must(r.AlterConfig(r.ctx, r.topic, "retention.ms", &value), "alter config")
	r.expectConfig("retention.ms", Config{value, false})
	r.must(r.AlterConfig(r.ctx, r.topic, "retention.ms", nil), "reset config")
	r.expectConfig("retention.ms", Config{"604800000", true})
}

func adminRecords(r *run) {
	const before = 4
	records := numbered(10, 1)
	r.produce(acksAll, records)
	r.must(r.DeleteRecords(r.ctx, r.topic, 0, before), "delete records")
	r.expectSpan(0, before, 10)
	r.same(r.readBack(map[int32]Start{0: {Kind: FromEarliest}}, 10-before), records[before:], before)
	size, err := r.LogDirBytes(r.ctx, r.topic)
	r.must(err, "describe log dirs")
	if size <= 0 {
		r.fail("log dirs report %d bytes for the topic", size)
	}
}
