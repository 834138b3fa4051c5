package broker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pipeops/pipeops-vm-agent/test/launch"
)

// marker is in the environment of every process that a broker consists of: it
// finds them all, Erlang's port mapper and helpers included, and no others, even
// when a process ID was used again.
const marker = "PIPEOPS_TEST_BROKER"

// nodeName is on localhost so that Erlang asks no DNS. Each broker has its own port mapper, which
// knows one node.
const nodeName = "pipeops@localhost"

func (b *Broker) environ() []string {
	vars := map[string]string{
		"PATH":                                os.Getenv("PATH"),
		"LANG":                                "C.UTF-8",
		marker:                                b.dir,
		"HOME":                                b.dir, // .erlang.cookie
		"RABBITMQ_BASE":                       b.dir,
		"RABBITMQ_NODENAME":                   nodeName,
		"RABBITMQ_CONF_ENV_FILE":              filepath.Join(b.dir, "rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE":                filepath.Join(b.dir, "rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE":       filepath.Join(b.dir, "enabled_plugins"),
		"RABBITMQ_MNESIA_BASE":                filepath.Join(b.dir, "data"),
		"RABBITMQ_LOG_BASE":                   b.LogDir(),
		"RABBITMQ_PID_FILE":                   filepath.Join(b.dir, "pid"),
		"RABBITMQ_DIST_PORT":                  strconv.Itoa(b.distPort),
		"RABBITMQ_LOGS":                       filepath.Join(b.LogDir(), "rabbitmq.log"),
		"RABBITMQ_GENERATED_CONFIG_DIR":       filepath.Join(b.dir, "data"),
		"ERL_EPMD_PORT":                       strconv.Itoa(b.epmdPort),
		"ERL_EPMD_ADDRESS":                    "127.0.0.1",
		"ERL_CRASH_DUMP":                      "/dev/null",
		"RABBITMQ_CTL_ERL_ARGS":               loopbackDist,
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": lowFootprint + " " + loopbackDist,
		// The start script then becomes the Erlang VM instead of its parent.
		"detached": "true",
	}
	env := make([]string, 0, len(vars))
	for key, value := range vars {
		env = append(env, key+"="+value)
	}
	return env
}

const (
	// loopbackDist keeps Erlang's distribution, which is as good as a shell, off
	// the network.
	loopbackDist = "-kernel inet_dist_use_interface {127,0,0,1}"
	// lowFootprint: one scheduler, and none that spins while it waits for work.
	lowFootprint = "+S 1:1 +SDcpu 1:1 +SDio 2 +sbwt none +sbwtdcpu none +sbwtdio none"
)

// Start starts the broker, also after Stop or Kill, with its data and ports. It waits until the
// broker can be used.
func (b *Broker) Start(ctx context.Context) error {
	// A half that is left of an earlier start would only be in the way.
	if err := b.killAll(ctx); err != nil {
		return err
	}
	b.say("starting (some 8 s)")
	started := time.Now()
	if err := b.writeConfig(); err != nil {
		return fmt.Errorf("broker: write its configuration: %w", err)
	}
	// Erlang would start this itself, but as a daemon for everyone on the machine.
	if _, err := b.launch(ctx, "epmd", "-port", strconv.Itoa(b.epmdPort), "-address", "127.0.0.1"); err != nil {
		return err
	}
	exited, err := b.launch(ctx, filepath.Join(binDir, "rabbitmq-server"))
	if err != nil {
		return err
	}
	if err := b.await(ctx, exited); err != nil {
		_ = b.killAll(context.WithoutCancel(ctx))
		return err
	}
	b.say("up on port %d after %s", b.amqpsPort, time.Since(started).Round(100*time.Millisecond))
	return nil
}

func (b *Broker) launch(ctx context.Context, program string, args ...string) (exited <-chan struct{}, err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Env, cmd.Dir = b.environ(), b.dir
	if exited, err = launch.Start(cmd, b.outputFile(), syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("broker: start %s: %w", program, err)
	}
	return exited, nil
}

func (b *Broker) outputFile() string { return filepath.Join(b.LogDir(), "output.log") }

// Stop stops the broker in order, which takes a second or two, and keeps its data.
func (b *Broker) Stop(ctx context.Context) error {
	server := b.processes("beam.smp")
	for _, pid := range server {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	if len(server) > 0 {
		b.say("stopping")
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_ = poll(ctx, func(context.Context) (bool, error) { return len(b.processes("beam.smp")) == 0, nil })
	}
	return b.killAll(ctx)
}

// killAll ends every process of the broker and returns when they are gone.
func (b *Broker) killAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := poll(ctx, func(context.Context) (bool, error) {
		pids := b.processes("")
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("broker: its processes %v do not end: %w", b.processes(""), err)
	}
	return nil
}

// processes finds the broker's live processes, those of one command or all.
func (b *Broker) processes(command string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	mine := []byte(marker + "=" + b.dir + "\x00")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || !bytes.Contains(env, mine) {
			continue
		}
		// A zombie has an empty environment and does not come here.
		name, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "comm"))
		if err == nil && (command == "" || strings.TrimSpace(string(name)) == command) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// poll tries until it is so or the context ends.
func poll(ctx context.Context, so wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, so)
}
