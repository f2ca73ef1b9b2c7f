package suite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// kills is how often the process of a pipeline is killed, and the others are after at most how many
	// rounds and how long.
	kills             = 6
	brokerKilledIn    = 2
	killedWithin      = 12
	killedWithinTime  = 30 * time.Millisecond
	startedWithinTime = time.Second
	// recordsPerLife is enough for all the rounds that one who is killed may be waited for, however
	// fast it is.
	recordsPerLife = 300
	// instance makes the process a static member: who comes again finds its partitions without
	// waiting for the end of the session of the one who was killed.
	instance = "worker"
)

// pipelineProcess is a pipeline that runs as this program again, see servePipeline, and says each round.
type pipelineProcess struct {
	*run
	command *exec.Cmd
	in      io.Closer
	rounds  chan string
}

// spawn starts one that goes on until so many are committed.
func (p *pipeline) spawn(until int) *pipelineProcess {
	program, err := os.Executable()
	p.must(err, "find this program")
	words := strings.Join([]string{p.source, p.sink, strconv.Itoa(until)}, ",")
	command := exec.Command(program, "--bootstrap", strings.Join(p.bootstrap, ","), "--pipeline", words)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	p.must(err, "open a pipe")
	out, err := command.StdoutPipe()
	p.must(err, "open a pipe")
	p.must(command.Start(), "start a pipeline's process")
	w := &pipelineProcess{p.run, command, in, make(chan string, 2*p.count)}
	go func() {
		defer close(w.rounds)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.rounds <- lines.Text()
		}
	}()
	return w
}

// said waits for a round; false if the process has ended.
func (w *pipelineProcess) said() bool {
	select {
	case _, there := <-w.rounds:
		return there
	case <-w.ctx.Done():
		w.fail("a pipeline's process says nothing: %w", w.ctx.Err())
	}
	return false
}

func (w *pipelineProcess) goOn(rounds int) {
	for range rounds {
		if !w.said() {
			w.fail("a pipeline's process has ended: %v", w.command.Wait())
		}
	}
}

func (w *pipelineProcess) finish() {
	w.in.Close()
	for w.said() {
	}
	w.must(w.command.Wait(), "a pipeline's process")
}

func (w *pipelineProcess) kill() {
	w.command.Process.Kill()
	w.command.Wait()
}

// servePipeline is the life of one that is to be killed. The broker may be away when it begins. At its
// end it waits for that of its input, so that one that is to be killed is there to be.
func servePipeline(open func(bootstrap []string) (Driver, error), bootstrap []string, source, sink, until string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	records, err := strconv.Atoi(until)
	if err != nil {
		return err
	}
	defer caught(&err)
	r := &run{ctx: ctx, topic: source, bootstrap: bootstrap}
	r.eventually("connect", func() (err error) {
		r.Driver, err = open(bootstrap)
		return err
	})
	p := &pipeline{run: r, source: source, sink: sink, instance: instance, count: records}
	p.until(records, func(round int) bool {
		fmt.Println("round", round)
		return round%5 != 4
	})
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// clientKill kills the process of a pipeline again and again, and the broker with it and without.
func clientKill(r *run) {
	p := newPipeline(r, (kills+1)*recordsPerLife)
	seed := rand.Uint64()
	fmt.Fprintln(os.Stderr, "kills by seed", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	alone := chance.IntN(2) == 0 // is the broker killed while the process lives; else together with it
	for life := range kills {
		w := p.spawn((life + 1) * recordsPerLife)
		func() {
			defer w.kill()
			if life == brokerKilledIn && alone {
				w.goOn(1 + chance.IntN(killedWithin))
				fmt.Println("kill broker")
			}
			rounds, within := chance.IntN(killedWithin+1), killedWithinTime
			if rounds == 0 {
				within = startedWithinTime
			}
			w.goOn(rounds)
			// The moment that the kill comes at is what is tried here; nothing waits for it.
			time.Sleep(time.Duration(chance.Int64N(int64(within))))
			if life == brokerKilledIn && !alone {
				fmt.Println("kill broker")
			}
		}()
	}
	w := p.spawn(p.count)
	defer w.kill()
	w.finish()
	p.check()
}
