package suite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	rollingPartitions = 8
	// Of the records that are written while members come and go.
	batch      = 2 * rollingPartitions
	writeEvery = 50 * time.Millisecond
)

// process is a member that runs as this program again, see serve, and leaves only by being killed.
type process struct {
	command *exec.Cmd
	killed  chan struct{}
	ended   chan struct{}
}

func (p *process) kill() {
	close(p.killed)
	p.command.Process.Kill()
	<-p.ended
}

// serve is such a member: it says on stdout what it reads, before it commits that, and what it has.
func serve(driver Driver, topic, group, protocol string) error {
	ctx := context.Background()
	member, err := driver.Join(ctx, topic, group, protocol)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	uncommitted := false
	for {
		records, err := member.Poll(ctx)
		if err != nil {
			return err
		}
		for _, r := range records {
			fmt.Fprintln(out, "read", r.Partition, r.Offset, string(r.Value))
		}
		if err := out.Flush(); err != nil {
			return err
		}
		uncommitted = uncommitted || len(records) > 0
		if uncommitted {
			done, err := member.Commit(ctx)
			if err != nil {
				return err
			}
			uncommitted = !done
		}
		fmt.Fprintln(out, "has", strings.Trim(fmt.Sprint(member.Assigned()), "[]"))
	}
}

// spawn has a member join as a process of its own.
func (g *group) spawn(protocol string) *worker {
	program, err := os.Executable()
	g.must(err, "find this program")
	member := strings.Join([]string{g.topic, g.id, protocol}, ",")
	command := exec.Command(program, "--bootstrap", strings.Join(g.bootstrap, ","), "--member", member)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	g.must(err, "open a pipe")
	g.must(command.Start(), "start a member's process")
	p := &process{command: command, killed: make(chan struct{}), ended: make(chan struct{})}
	w := &worker{process: p}
	g.workers = append(g.workers, w)
	go w.listen(g, out)
	return w
}

func (w *worker) listen(g *group, out io.Reader) {
	defer close(w.process.ended)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil { // what it was about to say when it was killed is no line
			break
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "has" {
			w.has(strings.Fields(rest))
			continue
		}
		record := &Record{}
		var value string
		if _, err := fmt.Sscan(rest, &record.Partition, &record.Offset, &value); err != nil {
			w.fail(fmt.Errorf("a member says %q", line))
			break
		}
		record.Value = []byte(value)
		g.note([]*Record{record})
	}
	w.process.command.Wait()
	w.has(nil)
	select {
	case <-w.process.killed:
	default:
		w.fail(fmt.Errorf("a member's process has ended"))
	}
}

func (w *worker) has(words []string) {
	partitions := make([]int32, len(words))
	for i, word := range words {
		fmt.Sscan(word, &partitions[i])
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.partitions = partitions
}

func (w *worker) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (g *group) kill(w *worker) {
	g.remove(w)
	w.process.kill()
}

// writing writes all the time, in a goroutine of its own, until what it returns is called.
func (g *group) writing() (end func()) {
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-over:
				ended <- nil
				return
			case <-time.After(writeEvery):
			}
			for _, err := range g.Produce(g.ctx, g.topic, acksAll, g.next(batch)) {
				if err != nil {
					ended <- err
					return
				}
			}
			g.produced += batch
		}
	}()
	return func() {
		close(over)
		g.must(<-ended, "the producer")
	}
}

// watch fails if what is committed has gone back.
func (g *group) watch() {
	now, err := g.Committed(g.ctx, g.id, g.topic)
	g.must(err, "committed offsets")
	for partition, offset := range g.last {
		if now[partition] < offset {
			g.fail("committed of %d went from %d to %d", partition, offset, now[partition])
		}
	}
	g.last = now
}

// rolling has members come, go and die, several at a time, while records are written all along.
func rolling(protocol string) func(*run) {
	return func(r *run) {
		g := newGroupOf(r, rollingPartitions)
		defer g.end()
		g.last = make(map[int32]int64)
		end := g.writing()
		a, b, c := g.join(protocol), g.spawn(protocol), g.join(protocol)
		g.settle(2, 3, 3)
		g.join(protocol)
		e := g.spawn(protocol)
		g.settle(1, 1, 2, 2, 2)
		g.kill(b)
		g.leave(a)
		g.settle(2, 3, 3)
		// In the middle of the rebalance that the newcomer brings about.
		g.join(protocol)
		g.kill(e)
		g.settle(2, 3, 3)
		g.leave(c)
		g.join(protocol)
		g.join(protocol)
		g.settle(2, 2, 2, 2)
		end()
		g.readAll()
	}
}
