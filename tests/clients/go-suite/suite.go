// Package suite owns the client scenarios of ../README.md as every Go client family runs them, and
// the program around them. It never speaks the Kafka protocol: a family gives it a Driver over its
// own client library.
package suite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// scenarioLimit bounds one scenario, so that a broker that never answers is a failure and not a hang.
const scenarioLimit = 100 * time.Second

// readBackLimit bounds the reading of records that are known to be there.
const readBackLimit = 30 * time.Second

// sample is how many partitions of a large topic are looked at.
const sample = 50

// pollEvery is the pause between looks at a state that the cluster reaches in its own time.
const pollEvery = 50 * time.Millisecond

// FetchWait is the longest wait every family's consumer asks of the broker for one fetch.
const FetchWait = 500 * time.Millisecond

// Kafka error codes that scenarios expect by number, whatever the client calls them.
const (
	OffsetOutOfRange        int16 = 1
	UnknownTopicOrPartition int16 = 3
	MessageTooLarge         int16 = 10
	TopicAlreadyExists      int16 = 36
)

// NoOffset is OffsetAfter's answer when no record is that young.
const NoOffset int64 = -1

// Record is one record to produce, or one that came back. Key, Value and header values that are nil
// are null on the wire; empty ones are empty.
type Record struct {
	Partition  int32
	Offset     int64
	Timestamp  time.Time // zero: the client's own clock
	Key, Value []byte
	Headers    []Header
}

type Header struct {
	Key   string
	Value []byte
}

// ProducerOptions are the settings in which the produce scenarios differ.
type ProducerOptions struct {
	Acks       int16
	Codec      string // none, gzip, snappy, lz4, zstd
	Idempotent bool
	OneByOne   bool // each record is acknowledged before the next is handed over
	SmallBatch bool // batches so small that many requests follow each other
}

// Start is where a consumer begins in a partition.
type Start struct {
	Kind   StartKind
	Offset int64     // FromOffset
	Time   time.Time // FromTime
}

type StartKind int

const (
	FromEarliest StartKind = iota
	FromLatest
	FromOffset
	FromTime // the first record at or after a time
)

// Batch is what the broker stores around records, where a scenario has to look past the client's
// record view.
type Batch struct {
	Codec      string
	ProducerID int64
}

type Cluster struct {
	ID         string
	Controller int32
	Brokers    []int32
}

type Partition struct {
	ID, Leader    int32
	Replicas, ISR []int32
}

type Config struct {
	Value     string
	IsDefault bool
}

// Driver is one client library behind the calls the scenarios make. Each scenario opens its own;
// whatever it starts is stopped by Close.
type Driver interface {
	// Produce hands records over in order, each to its own partition, and waits for the outcome of
	// all. It sets Offset where the client learns it and returns one error (or nil) a record.
	Produce(ctx context.Context, topic string, options ProducerOptions, records []*Record) []error
	// Consume assigns partitions by hand, without a consumer group and without a reset policy: an
	// offset out of range is an error, here or at Next.
	Consume(ctx context.Context, topic string, starts map[int32]Start) (Consumer, error)
	// StoredBatch describes the first batch of a partition.
	StoredBatch(ctx context.Context, topic string, partition int32) (Batch, error)

	CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) error
	DeleteTopic(ctx context.Context, topic string) error
	ListTopics(ctx context.Context) ([]string, error)
	DescribeTopic(ctx context.Context, topic string) ([]Partition, error)
	Offsets(ctx context.Context, topic string, partition int32) (earliest, latest int64, err error)
	// OffsetAfter is the offset of the first record at or after a time, or NoOffset.
	OffsetAfter(ctx context.Context, topic string, partition int32, at time.Time) (int64, error)
	DescribeCluster(ctx context.Context) (Cluster, error)
	DescribeConfig(ctx context.Context, topic, key string) (Config, error)
	// AlterConfig is incremental; a nil value goes back to the default.
	AlterConfig(ctx context.Context, topic, key string, value *string) error
	CreatePartitions(ctx context.Context, topic string, count int32) error
	DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error
	LogDirBytes(ctx context.Context, topic string) (int64, error)
	GroupDriver
	TxnDriver

	// Code is the Kafka error code inside a client's error, or -1 when there is none.
	Code(err error) int16
	Close()
}

// Consumer yields records of its partitions in partition order.
type Consumer interface {
	// Next waits for at least one record.
	Next(ctx context.Context) ([]*Record, error)
	// Seek moves a partition; Next then yields from there.
	Seek(ctx context.Context, partition int32, offset int64) error
	// Fetches counts the fetch requests made so far.
	Fetches() int64
	Close()
}

// Main runs the scenarios the command line asks for and exits. Protocols are those in which the
// family's consumers may share a group.
func Main(family string, protocols []string, open func(bootstrap []string) (Driver, error)) {
	for _, protocol := range protocols {
		scenarios = append(scenarios, scenario{"group-" + protocol, life(protocol)})
	}
	for _, protocol := range protocols {
		name := strings.TrimSuffix("group-rolling-"+protocol, "-"+Classic)
		scenarios = append(scenarios, scenario{name, rolling(protocol)})
	}
	scenarios = append(scenarios, scenario{"group-admin", groupAdmin(protocols)})
	scenarios = append(scenarios, txnScenarios...)
	bootstrap := flag.String("bootstrap", "", "HOST:PORT[,HOST:PORT] of the brokers to test")
	only := flag.String("only", "", "run this scenario alone")
	list := flag.Bool("list", false, "print the scenario names")
	member := flag.String("member", "", "for the program's own use: TOPIC,GROUP,PROTOCOL of a member to be killed")
	pipes := flag.String("pipeline", "", "for the program's own use: SOURCE,SINK,COUNT of a pipeline to be killed")
	flag.String("data-dir", "", "the broker's data directory, which no scenario here reads")
	flag.Parse()
	if *list {
		for _, s := range scenarios {
			fmt.Println(s.name)
		}
		return
	}
	if *bootstrap == "" {
		fmt.Fprintf(os.Stderr, "%s: --bootstrap HOST:PORT is required\n", family)
		os.Exit(2)
	}
	if *member != "" {
		driver, err := open(strings.Split(*bootstrap, ","))
		if words := strings.Split(*member, ","); err == nil && len(words) == 3 {
			err = serve(driver, words[0], words[1], words[2])
		}
		fmt.Fprintf(os.Stderr, "%s: a member ends: %v\n", family, err)
		os.Exit(1)
	}
	if words := strings.Split(*pipes, ","); len(words) == 3 {
		err := servePipeline(open, strings.Split(*bootstrap, ","), words[0], words[1], words[2])
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: a pipeline ends: %v\n", family, err)
			os.Exit(1)
		}
		return
	}
	ran, failed := 0, 0
	for _, s := range scenarios {
		if *only != "" && *only != s.name {
			continue
		}
		ran++
		if err := runOne(family, s, strings.Split(*bootstrap, ","), open); err != nil {
			failed++
			fmt.Printf("not ok %s: %s\n", s.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("ok %s\n", s.name)
		}
	}
	if ran == 0 {
		fmt.Fprintf(os.Stderr, "%s: no scenario is called %q\n", family, *only)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run is one scenario under way: its driver, its own topic name and the shared assertions.
type run struct {
	Driver
	ctx       context.Context
	topic     string
	bootstrap []string
}

// failure carries an assertion out of a scenario by panic, so that scenarios read as straight lines.
type failure struct{ err error }

func runOne(family string, s scenario, bootstrap []string, open func([]string) (Driver, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- attempt(ctx, family, s, bootstrap, open) }()
	select {
	case err := <-done:
		fmt.Fprintf(os.Stderr, "%s: %s took %v\n", family, s.name, time.Since(began).Round(time.Millisecond))
		return err
	case <-time.After(scenarioLimit + time.Second): // a client that does not heed ctx
		return fmt.Errorf("no end after %v", scenarioLimit)
	}
}

func attempt(ctx context.Context, family string, s scenario, bootstrap []string,
	open func([]string) (Driver, error)) (err error) {
	driver, err := open(bootstrap)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer driver.Close()
	defer caught(&err)
	topic := fmt.Sprintf("%s-%s-%s", s.name, family, hex.EncodeToString(randomBytes(4)))
	s.body(&run{driver, ctx, topic, bootstrap})
	return nil
}

// caught is deferred; it makes an error of a failure.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.err
	default:
		*err = fmt.Errorf("panic: %v", p)
	}
}

func (r *run) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func (r *run) must(err error, doing string) {
	if err != nil {
		r.fail("%s: %w", doing, err)
	}
}

func (r *run) expectCode(err error, code int16, doing string) {
	if err == nil {
		r.fail("%s: succeeded, expected error code %d", doing, code)
	}
	if got := r.Code(err); got != code {
		r.fail("%s: error code %d (%v), expected %d", doing, got, err, code)
	}
}

// eventually looks until check is content, and fails with check's last complaint at the deadline.
func (r *run) eventually(what string, check func() error) {
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-r.ctx.Done():
			r.fail("%s: %w", what, err)
		case <-time.After(pollEvery):
		}
	}
}

// create makes the scenario's topic and waits until it can be used.
func (r *run) create(partitions int32, configs map[string]string) {
	r.must(r.CreateTopic(r.ctx, r.topic, partitions, configs), "create topic")
	r.awaitTopic(partitions)
}

// awaitTopic waits until every partition has a leader and a sample of the leaders serves: a broker
// may list a leader before that one has taken up its partition, and not every request is retried.
func (r *run) awaitTopic(partitions int32) {
	r.awaitLeaders(partitions)
	for partition := int32(0); partition < partitions; partition += max(1, partitions/sample) {
		r.eventually("list offsets of a new partition", func() error {
			_, _, err := r.Offsets(r.ctx, r.topic, partition)
			return err
		})
	}
}

func (r *run) awaitLeaders(count int32) {
	r.eventually("describe topic", func() error {
		found, err := r.DescribeTopic(r.ctx, r.topic)
		if err != nil {
			return err
		}
		if len(found) != int(count) {
			return fmt.Errorf("%d partitions listed, expected %d", len(found), count)
		}
		seen := make(map[int32]bool)
		for _, p := range found {
			if p.ID < 0 || p.ID >= count || seen[p.ID] {
				return fmt.Errorf("partition id %d is out of place", p.ID)
			}
			if p.Leader < 0 || len(p.Replicas) == 0 || len(p.ISR) == 0 {
				return fmt.Errorf("partition %d has leader %d, replicas %v, ISR %v",
					p.ID, p.Leader, p.Replicas, p.ISR)
			}
			seen[p.ID] = true
		}
		return nil
	})
}

func (r *run) produce(options ProducerOptions, records []*Record) {
	for i, err := range r.Produce(r.ctx, r.topic, options, records) {
		r.must(err, fmt.Sprintf("produce record %d of %d", i, len(records)))
	}
}

// readBack consumes from the given starts until count records came, none more than expected.
func (r *run) readBack(starts map[int32]Start, count int) []*Record {
	consumer, err := r.Consume(r.ctx, r.topic, starts)
	r.must(err, "open consumer")
	defer consumer.Close()
	return r.take(consumer, count)
}

// take gets count records and no more from a consumer.
func (r *run) take(consumer Consumer, count int) []*Record {
	ctx, cancel := context.WithTimeout(r.ctx, readBackLimit)
	defer cancel()
	var got []*Record
	for len(got) < count {
		records, err := consumer.Next(ctx)
		r.must(err, fmt.Sprintf("consume (%d of %d records so far)", len(got), count))
		got = append(got, records...)
	}
	if len(got) > count {
		r.fail("%d records came back, expected %d", len(got), count)
	}
	return got
}

// verify reads every partition from the start and compares content, order and offsets.
func (r *run) verify(sent []*Record) {
	starts := make(map[int32]Start)
	byPartition := make(map[int32][]*Record)
	for _, record := range sent {
		starts[record.Partition] = Start{Kind: FromEarliest}
		byPartition[record.Partition] = append(byPartition[record.Partition], record)
	}
	got := make(map[int32][]*Record)
	for _, record := range r.readBack(starts, len(sent)) {
		got[record.Partition] = append(got[record.Partition], record)
	}
	for partition, want := range byPartition {
		r.same(got[partition], want, 0)
		r.expectSpan(partition, 0, int64(len(want)))
	}
}

// expectSpan checks the offsets at which a partition begins and ends.
func (r *run) expectSpan(partition int32, earliest, latest int64) {
	first, end, err := r.Offsets(r.ctx, r.topic, partition)
	r.must(err, "list offsets")
	if first != earliest || end != latest {
		r.fail("partition %d spans offsets %d to %d, expected %d to %d", partition, first, end, earliest, latest)
	}
}

// same compares records of one partition in order; the first has the given offset.
func (r *run) same(got, want []*Record, firstOffset int64) {
	if len(got) != len(want) {
		r.fail("%d records, expected %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		at := fmt.Sprintf("partition %d record %d", w.Partition, i)
		if g.Offset != firstOffset+int64(i) {
			r.fail("%s: offset %d, expected %d", at, g.Offset, firstOffset+int64(i))
		}
		r.sameBytes(g.Key, w.Key, at+" key")
		r.sameBytes(g.Value, w.Value, at+" value")
		if len(g.Headers) != len(w.Headers) {
			r.fail("%s: %d headers, expected %d", at, len(g.Headers), len(w.Headers))
		}
		for h := range w.Headers {
			r.sameBytes([]byte(g.Headers[h].Key), []byte(w.Headers[h].Key), at+" header key")
			r.sameBytes(g.Headers[h].Value, w.Headers[h].Value, at+" header "+w.Headers[h].Key)
		}
		if !w.Timestamp.IsZero() && g.Timestamp.UnixMilli() != w.Timestamp.UnixMilli() {
			r.fail("%s: timestamp %v, expected %v", at, g.Timestamp, w.Timestamp)
		}
	}
}

func (r *run) sameBytes(got, want []byte, what string) {
	if (got == nil) != (want == nil) {
		r.fail("%s: null is %v, expected %v", what, got == nil, want == nil)
	}
	if string(got) != string(want) {
		r.fail("%s: %d bytes %.40q, expected %d bytes %.40q", what, len(got), got, len(want), want)
	}
}

func randomBytes(count int) []byte {
	buffer := make([]byte, count)
	rand.Read(buffer) // documented never to fail
	return buffer
}
