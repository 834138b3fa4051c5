package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

func TestMain(m *testing.M) {
	testscript.Main(testmain.Wrap(m, databases.Stop, rabbit.Stop), map[string]func(){"pipeops-controlplane": func() { os.Exit(Main(Build{Version: version, Commit: commit})) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup:               setUp(t),
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"served": func(ts *testscript.TestScript, _ bool, args []string) { served(ts, args) },
			"ended":  func(ts *testscript.TestScript, _ bool, _ []string) { stopServing(ts) },
			"mode":   mode,
		},
		Condition: func(name string) (bool, error) {
			if name != string(postgres.PostgreSQL) {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return postgres.Chosen(t) == postgres.PostgreSQL, nil
		},
	})
}

// setUp gives a script a data directory, the chosen database, and a release that is signed.
func setUp(t *testing.T) func(*testscript.Env) error {
	return func(env *testscript.Env) error {
		env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
		env.Setenv("PIPEOPS_DATA_DIR", filepath.Join(env.WorkDir, "data"))
		env.Setenv(flags.EnvDatabase, newURL(t))
		releasetest.Write(t, filepath.Join(env.WorkDir, "release"), release.Manifest{Version: "v1.2.3", Commit: "abc", Files: []release.File{
			{Name: "pipeops-agent", SHA256: strings.Repeat("a", 64), Size: 1, Kind: release.KindAgent, OS: "linux", Arch: "amd64"},
		}})
		// The race detector has each process wait a second at its end, for stragglers.
		env.Setenv("GORACE", "atexit_sleep_ms=0")
		return nil
	}
}

// served has a control plane serve the data directory until the script ends, or until it is served
// again; with arguments, agents of these names register.
func served(ts *testscript.TestScript, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	data := datadir.Data{Dir: ts.Getenv("PIPEOPS_DATA_DIR"), Database: store.Postgres{URL: ts.Getenv(flags.EnvDatabase)}}
	stopServing(ts)
	cp, err := controlplane.New(ctx, controlplane.Config{
		DataDir: data.Dir, Database: data.Database, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
	})
	ts.Check(err)
	running, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cp.Run(running) }()
	end := sync.OnceValue(func() error {
		stop()
		select {
		case err := <-done:
			return err
		case <-time.After(3 * time.Minute):
			return errors.New("the control plane does not end")
		}
	})
	planes.Store(ts.Getenv("WORK"), end)
	ts.Defer(func() { stopServing(ts) })
	for _, name := range args {
		ts.Check(register(ctx, data, cp.Advertised().API, name))
	}
}

// planes are the control planes of the scripts that run, by directory.
var planes sync.Map

// stopServing ends the control plane of a script, if there is one.
func stopServing(ts *testscript.TestScript) {
	if end, found := planes.LoadAndDelete(ts.Getenv("WORK")); found {
		ts.Check(end.(func() error)())
	}
}

// mode checks a file's rights: mode 600 FILE.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm().String(); got != args[0] {
		ts.Fatalf("%s is %s, not %s", args[1], got, args[0])
	}
}
