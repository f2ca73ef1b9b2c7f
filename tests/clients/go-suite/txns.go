package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	pipePartitions = 2
	// PipeRecords are the most of one transaction of a Pipe.
	PipeRecords = 10
	// longTimeout is that of transactions which are to end by themselves.
	longTimeout = time.Minute
	// openFor is how long a reader looks for what it must not see.
	openFor = time.Second
)

// Transactor is a producer with a transactional id.
type Transactor interface {
	Begin() error
	// Send sends records of the transaction and waits for all.
	Send(ctx context.Context, topic string, records []*Record) error
	// End commits or aborts.
	End(ctx context.Context, commit bool) error
	Close()
}

// Pipe is a consumer of a group and a producer whose transactions hold the offsets of what was read.
type Pipe interface {
	// Poll waits a moment for records, PipeRecords at most.
	Poll(ctx context.Context) ([]*Record, error)
	// Transact writes what was polled and its offsets, calls before, and commits or aborts; what it
	// did in the end is told. What was aborted is polled again.
	Transact(ctx context.Context, sink string, records []*Record, before func() (commit bool)) (bool, error)
	Close()
}

// TxnDriver is the part of a Driver for transactions.
type TxnDriver interface {
	// Transactor gives a producer that has initialised its id.
	Transactor(ctx context.Context, id string, timeout time.Duration) (Transactor, error)
	// Pipe gives one that has initialised its id; it is a static member, if an instance is named.
	Pipe(ctx context.Context, source, group, id, instance string) (Pipe, error)
	// ConsumeCommitted is Consume of what is committed.
	ConsumeCommitted(ctx context.Context, topic string, starts map[int32]Start) (Consumer, error)
	// Fenced is whether an error says that the id is another producer's by now.
	Fenced(err error) bool
}

var txnScenarios = []scenario{
	{"txn-commit-abort", commitAbort},
	{"txn-fencing", fencing},
	{"txn-consume-transform", consumeTransform},
	{"txn-timeout", txnTimeout},
	{"txn-broker-kill", brokerKill},
	{"txn-client-kill", clientKill},
}

func indexed(count int32, bounds ...int) []*Record {
	var records []*Record
	for i := 0; i < len(bounds); i += 2 {
		for index := bounds[i]; index < bounds[i+1]; index++ {
			records = append(records, &Record{
				Partition: int32(index) % count,
				Key:       fmt.Appendf(nil, "key-%06d", index),
				Value:     fmt.Appendf(nil, "value-%06d", index),
			})
		}
	}
	return records
}

func values(bounds ...int) []string {
	var all []string
	for _, record := range indexed(1, bounds...) {
		all = append(all, string(record.Value))
	}
	return all
}

func (r *run) transactor(id string, timeout time.Duration) Transactor {
	made, err := r.Transactor(r.ctx, id, timeout)
	r.must(err, "open a transactional producer")
	return made
}

// transact is one transaction with these records.
func (r *run) transact(t Transactor, commit bool, bounds ...int) error {
	if err := t.Begin(); err != nil {
		return err
	}
	if err := t.Send(r.ctx, r.topic, indexed(partitions, bounds...)); err != nil {
		return err
	}
	return t.End(r.ctx, commit)
}

func everyStart(count int32) map[int32]Start {
	starts := make(map[int32]Start)
	for partition := range count {
		starts[partition] = Start{Kind: FromEarliest}
	}
	return starts
}

// seen are the values in front of records that are written now, outside of a transaction: who comes
// to them has seen all that is decided.
func (r *run) seen(topic string, count int32, committed bool) []string {
	mark := fmt.Sprintf("mark-%x", randomBytes(4))
	marks := make([]*Record, count)
	for partition := range marks {
		marks[partition] = &Record{Partition: int32(partition), Value: []byte(mark)}
	}
	for _, err := range r.Produce(r.ctx, topic, acksAll, marks) {
		r.must(err, "produce a mark")
	}
	open := r.Consume
	if committed {
		open = r.ConsumeCommitted
	}
	consumer, err := open(r.ctx, topic, everyStart(count))
	r.must(err, "open consumer")
	defer consumer.Close()
	var found []string
	ctx, cancel := context.WithTimeout(r.ctx, readBackLimit)
	defer cancel()
	for left := count; left > 0; {
		records, err := consumer.Next(ctx)
		r.must(err, fmt.Sprintf("consume up to the marks (committed only: %v)", committed))
		for _, record := range records {
			if string(record.Value) == mark {
				left--
			} else if !strings.HasPrefix(string(record.Value), "mark-") {
				found = append(found, string(record.Value))
			}
		}
	}
	slices.Sort(found)
	return found
}

func (r *run) sameValues(what string, got, want []string) {
	want = slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(v string) bool { return slices.Contains(got, v) })
	more := slices.DeleteFunc(slices.Clone(got), func(v string) bool { return slices.Contains(want, v) })
	r.fail("%s: %d values, expected %d; missing %.300v, too much %.300v", what, len(got), len(want), missing, more)
}

func (r *run) check(committed, all []string) {
	r.sameValues("committed", r.seen(r.topic, partitions, true), committed)
	r.sameValues("all", r.seen(r.topic, partitions, false), all)
}

// hidden fails if a reader of what is committed gets one of these, which others can read.
func (r *run) hidden(hidden []string) {
	all := r.seen(r.topic, partitions, false)
	for _, value := range hidden {
		if !slices.Contains(all, value) {
			r.fail("%s cannot be read", value)
		}
	}
	consumer, err := r.ConsumeCommitted(r.ctx, r.topic, everyStart(partitions))
	r.must(err, "open consumer")
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(r.ctx, openFor)
	defer cancel()
	for {
		records, err := consumer.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		r.must(err, "consume")
		for _, record := range records {
			if slices.Contains(hidden, string(record.Value)) {
				r.fail("%s of an open transaction was seen", record.Value)
			}
		}
	}
}

func commitAbort(r *run) {
	r.create(partitions, nil)
	t := r.transactor(r.topic, longTimeout)
	defer t.Close()
	r.must(t.Begin(), "begin")
	r.must(t.Send(r.ctx, r.topic, indexed(partitions, 0, 100)), "send")
	r.hidden(values(0, 100))
	r.must(t.End(r.ctx, true), "commit")
	r.check(values(0, 100), values(0, 100))
	r.must(r.transact(t, false, 100, 200), "abort")
	r.check(values(0, 100), values(0, 200))
	committed := values(0, 100)
	for number := range 20 {
		first, commit := 200+8*number, number%3 != 2
		r.must(r.transact(t, commit, first, first+8), "a transaction")
		if commit {
			committed = append(committed, values(first, first+8)...)
		}
	}
	r.check(committed, values(0, 360))
	// Another's open transaction holds back what is committed behind it.
	other := r.transactor(r.topic+"-other", longTimeout)
	defer other.Close()
	r.must(other.Begin(), "begin")
	r.must(other.Send(r.ctx, r.topic, indexed(partitions, 360, 364)), "send")
	r.must(r.transact(t, true, 364, 368), "commit")
	r.hidden(values(360, 368))
	r.must(other.End(r.ctx, false), "abort")
	r.check(append(committed, values(364, 368)...), values(0, 368))
}

func (r *run) fenced(err error, doing string) {
	if err == nil {
		r.fail("%s: no error, expected to be fenced", doing)
	}
	if !r.Fenced(err) {
		r.fail("%s: expected to be fenced, got %w", doing, err)
	}
}

func fencing(r *run) {
	r.create(partitions, nil)
	zombie := r.transactor(r.topic, longTimeout)
	defer zombie.Close()
	r.must(r.transact(zombie, true, 0, 40), "commit")
	r.must(zombie.Begin(), "begin")
	r.must(zombie.Send(r.ctx, r.topic, indexed(partitions, 40, 80)), "send")
	heir := r.transactor(r.topic, longTimeout)
	defer heir.Close()
	r.check(values(0, 40), values(0, 80))
	err := zombie.Send(r.ctx, r.topic, indexed(partitions, 80, 120))
	if err == nil {
		err = zombie.End(r.ctx, true)
	}
	r.fenced(err, "the zombie's transaction goes on")
	r.must(heir.Begin(), "begin")
	r.must(heir.Send(r.ctx, r.topic, indexed(partitions, 120, 160)), "send")
	// One client says here only that its transaction is not in a state for this.
	if r.transact(zombie, true, 160, 200) == nil {
		r.fail("the zombie has committed a transaction")
	}
	r.must(heir.End(r.ctx, true), "commit")
	r.sameValues("committed", r.seen(r.topic, partitions, true), values(0, 40, 120, 160))
	third := r.transactor(r.topic, longTimeout)
	defer third.Close()
	r.fenced(r.transact(heir, true, 200, 240), "the next transaction")
	r.must(r.transact(third, true, 240, 280), "commit")
	r.sameValues("committed", r.seen(r.topic, partitions, true), values(0, 40, 120, 160, 240, 280))
}

// pipeline copies a topic to another in transactions.
type pipeline struct {
	*run
	source, sink   string
	instance       string
	count          int
	rounds, aborts int
}

func newPipeline(r *run, count int) *pipeline {
	p := &pipeline{run: r, source: r.topic, sink: r.topic + "-out", count: count}
	r.create(pipePartitions, nil)
	r.produce(acksAll, indexed(pipePartitions, 0, count))
	r.topic = p.sink
	r.create(pipePartitions, nil)
	return p
}

// committed is the sum of the group's offsets.
func (p *pipeline) committed() (sum int) {
	p.eventually("committed offsets", func() error {
		found, err := p.Committed(p.ctx, p.source, p.source)
		sum = 0
		for _, offset := range found {
			sum += max(int(offset), 0)
		}
		return err
	})
	return sum
}

// until goes on until so many are committed; before says of each round whether to commit it.
func (p *pipeline) until(count int, before func(round int) bool) {
	for p.committed() < count {
		var pipe Pipe
		p.eventually("a new pipe", func() (err error) {
			pipe, err = p.Pipe(p.ctx, p.source, p.source, p.sink, p.instance)
			return err
		})
		err := p.turn(pipe, count, before)
		pipe.Close()
		if p.ctx.Err() != nil {
			p.fail("no end with %d committed: %w", p.committed(), p.ctx.Err())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "a new pipe after", err)
		}
	}
}

func (p *pipeline) turn(pipe Pipe, count int, before func(round int) bool) error {
	for done := p.committed(); done < count && p.ctx.Err() == nil; {
		records, err := pipe.Poll(p.ctx)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			continue
		}
		p.rounds++
		committed, err := pipe.Transact(p.ctx, p.sink, records, func() bool { return before(p.rounds) })
		switch {
		case err != nil:
			return err
		case committed:
			done += len(records)
		default:
			p.aborts++
		}
	}
	return nil
}

func (p *pipeline) check() {
	p.sameValues("output", p.seen(p.sink, pipePartitions, true), values(0, p.count))
	if committed := p.committed(); committed != p.count {
		p.fail("%d committed, expected %d", committed, p.count)
	}
}

func consumeTransform(r *run) {
	p := newPipeline(r, 600)
	for _, count := range []int{300, 600} { // the second life goes on where the first ended
		p.until(count, func(round int) bool { return round%3 != 1 })
	}
	p.check()
	written := len(p.seen(p.sink, pipePartitions, false))
	if p.aborts < 10 || written <= p.count {
		p.fail("%d rounds were aborted, %d records written", p.aborts, written)
	}
}

// txnTimeout has a producer stop in the middle; the coordinator aborts it.
func txnTimeout(r *run) {
	r.create(partitions, nil)
	silent := r.transactor(r.topic, 3*time.Second)
	defer silent.Close()
	r.must(silent.Begin(), "begin")
	r.must(silent.Send(r.ctx, r.topic, indexed(partitions, 0, 40)), "send")
	// The marks in it come only when what is in front of them is decided.
	r.check(nil, values(0, 40))
	if silent.End(r.ctx, true) == nil {
		r.fail("what was aborted can be committed")
	}
	next := r.transactor(r.topic, longTimeout)
	defer next.Close()
	r.must(r.transact(next, true, 40, 80), "commit")
	r.check(values(40, 80), values(0, 80))
}

func brokerKill(r *run) {
	p := newPipeline(r, 600)
	p.until(p.count, func(round int) bool {
		if round == 30 { // the transaction has its records
			fmt.Println("kill broker")
		}
		return round%5 != 4
	})
	p.check()
}
