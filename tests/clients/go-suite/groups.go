package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Protocols in which consumers may share a group, as a family offers them.
const (
	Classic     = "classic"     // eager, with the range assignor
	Cooperative = "cooperative" // classic, with a cooperative assignor
	NextGen     = "consumer"    // KIP-848
)

// NonEmptyGroup is the error code for deleting a group in use.
const NonEmptyGroup int16 = 68

// Member is a consumer of a group. It begins at the earliest offset and never commits by itself.
type Member interface {
	// Poll waits a moment for records.
	Poll(ctx context.Context) ([]*Record, error)
	// Assigned lists its partitions.
	Assigned() []int32
	// Commit commits what was polled and says whether that is done: during a rebalance it is refused,
	// and has to be said again for the partitions that stay.
	Commit(ctx context.Context) (bool, error)
	// Close leaves the group.
	Close()
}

// GroupDriver is the part of a Driver for consumer groups.
type GroupDriver interface {
	Join(ctx context.Context, topic, group, protocol string) (Member, error)
	Committed(ctx context.Context, group, topic string) (map[int32]int64, error)
	ListGroups(ctx context.Context) ([]string, error)
	// DescribeGroup gives the state and how many members there are.
	DescribeGroup(ctx context.Context, group string) (state string, members int, err error)
	DeleteGroup(ctx context.Context, group string) error
}

// SessionTimeout is when a member that says nothing is given up: the least that brokers allow.
const SessionTimeout = 6 * time.Second

// worker is a member in a goroutine of its own, as it would be in a program: it polls, notes what came
// and commits it until it is told to leave.
type worker struct {
	stop, left chan struct{}
	mutex      sync.Mutex
	partitions []int32
	err        error
	// process is set for a member that is one, to be killed; it has no goroutine of its own here.
	process *process
}

func (w *worker) run(g *group, member Member) {
	defer close(w.left)
	defer member.Close()
	uncommitted := false
	for {
		select {
		case <-w.stop:
			return
		case <-g.ctx.Done():
			return
		default:
		}
		records, err := member.Poll(g.ctx)
		g.note(records)
		uncommitted = uncommitted || len(records) > 0
		if err == nil && uncommitted {
			var done bool
			done, err = member.Commit(g.ctx)
			uncommitted = !done
		}
		w.mutex.Lock()
		w.partitions = slices.Clone(member.Assigned())
		if err != nil {
			w.err = err
		}
		w.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// group is a group with its topic, its members, and what they have read.
type group struct {
	*run
	id       string
	workers  []*worker
	mutex    sync.Mutex
	seen     []map[int64]bool // by partition
	wrong    error
	produced int
	last     map[int32]int64 // what was committed at the last look, if anybody looks
}

func newGroup(r *run) *group {
	return newGroupOf(r, partitions)
}

func newGroupOf(r *run, partitions int32) *group {
	r.create(partitions, nil)
	g := &group{run: r, id: r.topic, seen: make([]map[int64]bool, partitions)}
	g.forget()
	return g
}

func (g *group) partitions() int {
	return len(g.seen)
}

func (g *group) forget() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for i := range g.seen {
		g.seen[i] = make(map[int64]bool)
	}
}

func (g *group) note(records []*Record) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, record := range records {
		want := fmt.Sprintf("value-%06d", record.Offset*int64(g.partitions())+int64(record.Partition))
		if string(record.Value) != want {
			g.wrong = fmt.Errorf("%d:%d holds %q, expected %q", record.Partition, record.Offset, record.Value, want)
		}
		g.seen[record.Partition][record.Offset] = true
	}
}

func (g *group) join(protocol string) *worker {
	member, err := g.Join(g.ctx, g.topic, g.id, protocol)
	g.must(err, "join")
	w := &worker{stop: make(chan struct{}), left: make(chan struct{})}
	g.workers = append(g.workers, w)
	go w.run(g, member)
	return w
}

func (g *group) remove(w *worker) {
	g.workers = slices.DeleteFunc(g.workers, func(other *worker) bool { return other == w })
}

func (g *group) leave(w *worker) {
	g.remove(w)
	close(w.stop)
	select {
	case <-w.left:
	case <-time.After(readBackLimit):
		g.fail("a member did not leave")
	}
	g.must(w.err, "a member that left")
}

// end lets every member go, whatever has happened.
func (g *group) end() {
	for _, w := range g.workers {
		if w.process != nil {
			w.process.kill()
			continue
		}
		close(w.stop)
		<-w.left
	}
}

func (g *group) write(count int) {
	g.produce(acksAll, g.next(count))
	g.produced += count
}

// next are the records that come next.
func (g *group) next(count int) []*Record {
	records := make([]*Record, count)
	for i := range records {
		index := g.produced + i
		records[i] = &Record{
			Partition: int32(index % g.partitions()),
			Key:       fmt.Appendf(nil, "key-%06d", index),
			Value:     fmt.Appendf(nil, "value-%06d", index),
		}
	}
	return records
}

// check fails if a member did, or got something wrong.
func (g *group) check() {
	if g.last != nil {
		g.watch()
	}
	for _, w := range g.workers {
		w.mutex.Lock()
		err := w.err
		w.mutex.Unlock()
		g.must(err, "a member")
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.must(g.wrong, "what was read")
}

func (g *group) settle(shares ...int) {
	g.eventually(fmt.Sprintf("shares %v", shares), func() error {
		g.check()
		var counts []int
		all := make(map[int32]bool)
		for _, w := range g.workers {
			w.mutex.Lock()
			counts = append(counts, len(w.partitions))
			for _, partition := range w.partitions {
				all[partition] = true
			}
			w.mutex.Unlock()
		}
		slices.Sort(counts)
		if !slices.Equal(counts, shares) || len(all) != g.partitions() {
			return fmt.Errorf("members have %v", counts)
		}
		return nil
	})
}

func (g *group) readAll() {
	each := g.produced / g.partitions()
	want := make(map[int32]int64)
	for partition := range int32(g.partitions()) {
		want[partition] = int64(each)
	}
	g.eventually("all records", func() error {
		g.check()
		g.mutex.Lock()
		defer g.mutex.Unlock()
		for partition, offsets := range g.seen {
			if len(offsets) != each {
				return fmt.Errorf("%d of %d of partition %d", len(offsets), each, partition)
			}
		}
		return nil
	})
	g.eventually("all commits", func() error {
		committed, err := g.Committed(g.ctx, g.id, g.topic)
		if err == nil && !maps.Equal(committed, want) {
			err = fmt.Errorf("committed is %v", committed)
		}
		return err
	})
}

// life has members come and go one after the other while records are written.
func life(protocol string) func(*run) {
	return func(r *run) {
		g := newGroup(r)
		defer g.end()
		g.write(200)
		first := g.join(protocol)
		g.settle(4)
		g.readAll()

		second := g.join(protocol)
		g.settle(2, 2)
		g.write(200)
		g.readAll()

		third := g.join(protocol)
		g.settle(1, 1, 2)
		g.write(200)
		g.leave(second)
		g.settle(2, 2)
		g.readAll()

		g.leave(first)
		g.leave(third)
		g.forget()
		g.write(40)
		g.join(protocol)
		g.eventually("new records", func() error {
			g.check()
			g.mutex.Lock()
			defer g.mutex.Unlock()
			for partition, offsets := range g.seen {
				if len(offsets) < 10 {
					return fmt.Errorf("%d of partition %d", len(offsets), partition)
				}
			}
			return nil
		})
		g.mutex.Lock()
		defer g.mutex.Unlock()
		for partition, offsets := range g.seen {
			for offset := range offsets {
				if len(offsets) != 10 || offset < 150 {
					g.fail("a new member read %d again of partition %d", offset, partition)
				}
			}
		}
	}
}

func groupAdmin(protocols []string) func(*run) {
	return func(r *run) {
		g := newGroup(r)
		defer g.end()
		g.write(40)
		for _, protocol := range protocols {
			member := g.join(protocol)
			g.settle(4)
			g.readAll()
			g.expectGroup(true)
			state, members, err := g.DescribeGroup(g.ctx, g.id)
			g.must(err, "describe group")
			if state != "Stable" || members != 1 {
				g.fail("a group with a member is %s with %d", state, members)
			}
			g.expectCode(g.DeleteGroup(g.ctx, g.id), NonEmptyGroup, "delete a group in use")
			g.leave(member)
			state, members, err = g.DescribeGroup(g.ctx, g.id)
			g.must(err, "describe group")
			if state != "Empty" || members != 0 {
				g.fail("a group without members is %s with %d", state, members)
			}
			g.must(g.DeleteGroup(g.ctx, g.id), "delete group")
			g.expectGroup(false)
			g.forget()
		}
	}
}

func (g *group) expectGroup(there bool) {
	groups, err := g.ListGroups(g.ctx)
	g.must(err, "list groups")
	if slices.Contains(groups, g.id) != there {
		g.fail("the group is among those listed: %v, expected %v", !there, there)
	}
}
