package launch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

// manifestOf is a release whose program is a text.
func manifestOf(version, text string) release.Manifest {
	sum := sha256.Sum256([]byte(text))
	return release.Manifest{Version: version, Commit: "abc", Files: []release.File{{
		Name: "a", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)), Kind: release.KindAgent, OS: runtime.GOOS, Arch: runtime.GOARCH,
	}}}
}

func stageManifest(t *testing.T, d Dir, m release.Manifest, text string) error {
	t.Helper()
	manifest, signature := releasetest.Sign(t, m)
	return d.Stage(&m, manifest, signature, strings.NewReader(text))
}

// stage stages a program of a text as a version.
func stage(t *testing.T, d Dir, version, text string, change ...func(*release.File)) error {
	t.Helper()
	m := manifestOf(version, text)
	for _, c := range change {
		c(&m.Files[0])
	}
	return stageManifest(t, d, m, text)
}

func TestStage_RefusesUnsigned(t *testing.T) {
	d := In(t.TempDir())
	require.NoError(t, stage(t, d, "v1.1.0", "program"))
	path, err := d.Verified("v1.1.0", releasetest.Trust(t))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "program", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	for name, change := range map[string]func(*release.File){
		"another digest": func(f *release.File) { f.SHA256 = strings.Repeat("0", 64) },
		"too large":      func(f *release.File) { f.Size-- },
	} {
		require.ErrorIs(t, stage(t, d, "v1.2.0", "program", change), ErrTampered, name)
	}
	require.ErrorIs(t, stage(t, d, "v1.2.0", "program", func(f *release.File) { f.Size++ }), io.ErrUnexpectedEOF, "half a download may be whole the next time")
	_, err = os.Stat(filepath.Join(string(d), "v1.2.0", "pipeops-agent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	left, err := filepath.Glob(filepath.Join(string(d), "v1.2.0", ".new-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestVerified_RefusesTampered(t *testing.T) {
	d := In(t.TempDir())
	require.NoError(t, stage(t, d, "v1.1.0", "program"))
	_, err := d.Verified("v1.1.0", releasetest.TrustIn(t, 1, releasetest.OtherKey))
	require.ErrorIs(t, err, release.ErrUntrusted, "a key that the customer took back")
	_, err = d.Verified("v1.1.0", releasetest.TrustIn(t, 2, releasetest.PublicKey, releasetest.SecondKey))
	require.ErrorContains(t, err, "1 of the 2 signatures", "the customer asks for two by now")
	_, err = d.Verified("../v1.1.0", releasetest.Trust(t))
	require.Error(t, err)
	require.NoError(t, os.Rename(filepath.Join(string(d), "v1.1.0"), filepath.Join(string(d), "v1.2.0")))
	_, err = d.Verified("v1.2.0", releasetest.Trust(t))
	require.ErrorContains(t, err, "v1.1.0 is not for v1.2.0")
	require.NoError(t, os.WriteFile(filepath.Join(string(d), "v1.2.0", "pipeops-agent"), []byte("PROGRAM"), 0o700))
	require.NoError(t, os.Rename(filepath.Join(string(d), "v1.2.0"), filepath.Join(string(d), "v1.1.0")))
	path, err := d.Verified("v1.1.0", releasetest.Trust(t))
	require.ErrorIs(t, err, ErrTampered)
	assert.Empty(t, path, "or it could be started all the same")
}

func staged(version string) Staged {
	return Staged{Version: version, Offer: "o-" + version, From: "v1.0.0"}
}

// start is what the installed v1.0.0 does at its start.
func start(t *testing.T, d Dir, version string) (path, as string) {
	t.Helper()
	path, as, _, err := Launcher{Dir: d, Version: version, Trust: releasetest.Trust(t)}.Start()
	require.NoError(t, err)
	return path, as
}

func load(t *testing.T, d Dir) Record {
	t.Helper()
	r, err := d.Load()
	require.NoError(t, err)
	return r
}

func TestStart_ConfirmedRelease(t *testing.T) {
	d := In(t.TempDir())
	path, _ := start(t, d, "v1.0.0")
	assert.Empty(t, path)
	_, err := os.Stat(string(d))
	require.ErrorIs(t, err, os.ErrNotExist, "nothing is made where nothing was updated")

	require.NoError(t, stage(t, d, "v1.1.0", "program"))
	require.NoError(t, d.Change(func(r *Record) { r.Confirm(staged("v1.1.0")); r.Prove(staged("v1.1.0")) }))
	for range maxStarts + 2 {
		path, as := start(t, d, "v1.0.0")
		assert.Equal(t, filepath.Join(string(d), "v1.1.0", "pipeops-agent"), path)
		assert.Equal(t, "v1.1.0", as)
	}
	path, _ = start(t, d, "v1.2.0")
	assert.Empty(t, path, "an administrator has installed a newer one")
	assert.Nil(t, load(t, d).Confirmed)
	_, err = os.Stat(filepath.Join(string(d), "v1.1.0"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestStart_ExpiredRelease: an expiry bounds what is installed, and stops no agent.
func TestStart_ExpiredRelease(t *testing.T) {
	d := In(t.TempDir())
	m := manifestOf("v1.1.0", "program")
	m.Expires = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Error(t, m.CheckExpiry(time.Now()))
	require.NoError(t, stageManifest(t, d, m, "program"))
	require.NoError(t, d.Change(func(r *Record) { r.Confirm(staged("v1.1.0")) }))
	_, as := start(t, d, "v1.0.0")
	assert.Equal(t, "v1.1.0", as)
}

func TestStart_FallsBackAfterFailedStarts(t *testing.T) {
	d := In(t.TempDir())
	require.NoError(t, stage(t, d, "v1.1.0", "one"))
	require.NoError(t, stage(t, d, "v1.2.0", "two"))
	require.NoError(t, d.Change(func(r *Record) {
		r.Confirm(staged("v1.1.0"))
		r.Prove(staged("v1.1.0"))
		r.Confirm(staged("v1.2.0"))
	}))
	for range maxStarts {
		_, as := start(t, d, "v1.0.0")
		assert.Equal(t, "v1.2.0", as)
	}
	_, as := start(t, d, "v1.0.0")
	assert.Equal(t, "v1.1.0", as)
	r := load(t, d)
	assert.Equal(t, "v1.2.0", r.Failed.Version)
	assert.Contains(t, r.Failed.Reason, "3 starts came to nothing")
}

func TestTrial_FailsAfterTwoInterruptions(t *testing.T) {
	d := In(t.TempDir())
	cutOff := func(s Staged) Record {
		require.NoError(t, d.Change(func(r *Record) { r.Trial = &s }))
		path, _ := start(t, d, "v1.0.0")
		assert.Empty(t, path)
		r := load(t, d)
		assert.Nil(t, r.Trial)
		return r
	}
	assert.Nil(t, cutOff(staged("v1.1.0")).Failed, "it may have been a power cut")
	assert.Nil(t, cutOff(staged("v1.2.0")).Failed, "another one")
	start(t, d, "v1.0.0")
	failed := cutOff(staged("v1.2.0")).Failed
	require.NotNil(t, failed)
	assert.Equal(t, "twice the agent ended while v1.2.0 was on trial beside it", failed.Reason)
}

func TestStart_RefusesOtherVersion(t *testing.T) {
	d := In(t.TempDir())
	require.NoError(t, stage(t, d, "v1.1.0", "program"))
	require.NoError(t, d.Change(func(r *Record) { r.Confirm(staged("v1.1.0")) }))
	t.Setenv(envLaunched, "v1.1.0")
	_, _, _, err := Launcher{Dir: d, Version: "v1.0.5", Trust: releasetest.Trust(t)}.Start()
	require.ErrorContains(t, err, "this program is v1.0.5, not v1.1.0")
	assert.Contains(t, load(t, d).Failed.Reason, "says that it is v1.0.5")
	assert.Nil(t, load(t, d).Confirmed)
}

func TestLoad_DamagedRecord(t *testing.T) {
	d := In(t.TempDir())
	require.NoError(t, d.Save(Record{}))
	require.NoError(t, os.WriteFile(d.recordFile(), []byte("{"), 0o600))
	_, err := d.Load()
	require.ErrorContains(t, err, "fix: remove it")
	require.NoError(t, os.WriteFile(d.recordFile(), []byte(`{"confirmed":{"version":"../../bin"}}`), 0o600))
	_, err = d.Load()
	require.ErrorContains(t, err, "../../bin")
	require.NoError(t, os.WriteFile(d.recordFile(), bytes.Repeat([]byte(" "), maxRecord+1), 0o600))
	_, err = d.Load()
	require.ErrorContains(t, err, "larger than")
}

// TestATrial has a shell be the program; test/selfupdate has the agent be it.
func TestATrial(t *testing.T) {
	dir, err := os.MkdirTemp("", "t-") // a socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	for name, c := range map[string]struct {
		script, want       string
		deadline, patience time.Duration
	}{
		"ends":    {"echo first >&2; echo last >&2; exit 4", "it ended: exit status 4: last", time.Minute, 0},
		"hangs":   {"trap '' TERM; exec sleep 1000", "it was not ready within 300ms: it said nothing", 300 * time.Millisecond, 100 * time.Millisecond},
		"is lost": {"exec /does/not/exist", "it ended: exit status 127", time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
			trial := Trial{Dir: Dir(dir), Path: path, Version: "v1.1.0", Deadline: c.deadline, Patience: c.patience, Stderr: io.Discard}
			require.ErrorContains(t, trial.Run(t.Context()), c.want)
		})
	}
}

// TestTrial_MustStayReady lets a program say how it is, a second apart each.
func TestTrial_MustStayReady(t *testing.T) {
	const ready, lost = "READY=1\nSTATUS=ready\nWATCHDOG=1", "STATUS=not ready: tunnel: connecting"
	for name, c := range map[string]struct {
		says  []string
		after time.Duration
		want  string // error
	}{
		"stays ready":            {[]string{"STATUS=starting", ready, "WATCHDOG=1"}, 2*time.Second + settle, ""},
		"is ready again":         {[]string{ready, lost, "WATCHDOG=1", "STATUS=ready"}, 4*time.Second + settle, ""},
		"is no longer ready":     {[]string{ready, lost}, 8 * time.Second, "it was not ready within 8.001s: not ready: tunnel: connecting"},
		"is lost too late":       {[]string{"", "", "", "", "", ready, "", "", lost}, 9 * time.Second, "not ready: tunnel: connecting"},
		"is ready just in time":  {[]string{"", "", "", "", "", "", ready}, 7*time.Second + settle, ""},
		"never says it is ready": {[]string{"STATUS=ready"}, 8 * time.Second, "it was not ready within 8.001s: ready"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				messages, done, began := make(chan string), make(chan error, 1), time.Now()
				trial := Trial{Deadline: 8*time.Second + time.Millisecond}
				go func() { done <- trial.watch(t.Context(), &child{ended: make(chan struct{})}, messages) }()
				for _, m := range c.says {
					time.Sleep(time.Second)
					messages <- m
				}
				err := <-done
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.want)
				}
				assert.InDelta(t, c.after.Seconds(), time.Since(began).Seconds(), 0.01)
			})
		})
	}
}

// TestTrial_LowMemory: a trial for which the machine has no room says nothing about the release; a
// program that cannot be executed does.
func TestTrial_LowMemory(t *testing.T) {
	trial := Trial{Dir: Dir(filepath.Join(t.TempDir(), strings.Repeat("long", 40))), Deadline: time.Minute, Stderr: io.Discard}
	require.ErrorIs(t, trial.Run(t.Context()), ErrNotBegun, "the socket's path is too long")
	dir, err := os.MkdirTemp("", "t-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	trial.Dir, trial.Path = Dir(dir), filepath.Join(dir, "program")
	require.ErrorIs(t, trial.Run(t.Context()), ErrNotBegun)
	require.NoError(t, os.WriteFile(trial.Path, []byte("no program"), 0o700))
	err = trial.Run(t.Context())
	require.ErrorContains(t, err, "it cannot be started")
	require.NotErrorIs(t, err, ErrNotBegun)
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"confirmed":{"version":"v1.1.0","proven":true},"trial":{"version":"v1.2.0"}}`))
	f.Add([]byte(`{"previous":{"version":"/"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := Dir(t.TempDir())
		require.NoError(t, os.WriteFile(d.recordFile(), text, 0o600))
		r, err := d.Load()
		if err == nil && r.Confirmed != nil && !release.ValidVersion(r.Confirmed.Version) {
			t.Fatalf("%q is not a version", r.Confirmed.Version)
		}
	})
}
