package recording_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/recording"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// memory is a store whose writes can be made to fail.
type memory struct {
	mu    sync.Mutex
	parts map[string][][]byte
	fails bool
}

func newMemory() *memory { return &memory{parts: map[string][][]byte{}} }

func (m *memory) Put(_ context.Context, id string, part int, text []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails {
		return errors.New("the disk is full")
	}
	if part != len(m.parts[id]) || len(text) > recording.MaxPart {
		return fmt.Errorf("part %d of %d bytes after %d parts", part, len(text), len(m.parts[id]))
	}
	m.parts[id] = append(m.parts[id], text)
	return nil
}

func (m *memory) Get(_ context.Context, id string, part int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if part >= len(m.parts[id]) {
		return nil, nil
	}
	return m.parts[id][part], nil
}

func (m *memory) List(context.Context) (all []recording.Entry, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, parts := range m.parts {
		e := recording.Entry{ID: id}
		for n, text := range parts {
			e.Add(n, int64(len(text)))
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b recording.Entry) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (m *memory) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, id)
	return nil
}

func (m *memory) String() string { return "memory" }

func (m *memory) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = true
}

// text returns a recording as its owner reads it.
func text(t *testing.T, s recording.Store, id string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, recording.Write(t.Context(), s, id, &b))
	return b.String()
}

// events returns the events of a recording, without their times.
func events(t *testing.T, cast string) (all [][2]string) {
	t.Helper()
	for line := range strings.Lines(cast) {
		if strings.HasPrefix(line, "{") {
			continue
		}
		var e []any
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		require.Len(t, e, 3)
		assert.GreaterOrEqual(t, e[0], 0.0)
		all = append(all, [2]string{e[1].(string), e[2].(string)})
	}
	return all
}

// session is a session that is being recorded.
type session struct {
	backend.Recording
	end  context.CancelFunc
	done chan error
}

func begin(t *testing.T, r *recording.Recorder, tty bool) session {
	t.Helper()
	rec, err := r.Begin(t.Context(), backend.Session{Runner: "ci", RequestID: "req-1", Namespace: "shop", Name: "web", TTY: tty})
	require.NoError(t, err)
	t.Cleanup(rec.Close)
	ctx, cancel := context.WithCancel(t.Context())
	s := session{rec, cancel, make(chan error, 1)}
	go func() { s.done <- rec.Run(ctx) }()
	return s
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
}

func TestRecording_IsAsciicast(t *testing.T) {
	for name, store := range map[string]recording.Store{"memory": newMemory(), "files": recording.Files{Dir: filepath.Join(t.TempDir(), "recordings")}} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, recording.New(store), true)
			out, errs := s.Output(), s.Output()
			s.Resize(runnerapi.TerminalSize{Width: 120, Height: 40})
			write(t, out, "caf\xc3")
			write(t, errs, "<\x1b[31m\u009b\x7f>")
			write(t, out, "\xa9\n")
			write(t, out, "bad \xff, half \xc3")
			s.end()
			require.NoError(t, await.Receive(t, s.done, "the end of the recording"))

			cast := text(t, store, s.ID())
			head, _, _ := strings.Cut(cast, "\n")
			var header map[string]any
			require.NoError(t, json.Unmarshal([]byte(head), &header))
			assert.InDelta(t, 2, header["version"], 0)
			assert.InDelta(t, 80, header["width"], 0)
			assert.InDelta(t, 24, header["height"], 0)
			assert.InDelta(t, time.Now().Unix(), header["timestamp"], 60)
			assert.Equal(t, "ci: exec shop/web", header["title"])
			assert.NotContains(t, header, "env")
			assert.Equal(t, [][2]string{
				{"r", "120x40"},
				{"o", "caf"}, {"o", "<\x1b[31m\u009b\x7f>"}, {"o", "é\n"},
				{"o", "bad \ufffd, half "}, {"o", "\ufffd"},
				{"m", "ended"},
			}, events(t, cast))
			assert.Equal(t, -1, strings.IndexFunc(strings.ReplaceAll(cast, "\n", ""), unicode.IsControl), "a recording has no control characters")

			infos, err := recording.Infos(t.Context(), store, 10)
			require.NoError(t, err)
			require.Len(t, infos, 1)
			i := infos[0]
			assert.Equal(t, []string{s.ID(), "ci", "shop", "web", "req-1"}, []string{i.ID, i.Runner, i.Namespace, i.Name, i.RequestID})
			assert.EqualValues(t, len(cast), i.Bytes)
			assert.WithinDuration(t, time.Now(), i.Time, time.Minute)

			require.NoError(t, recording.Delete(t.Context(), store, s.ID()))
			require.ErrorContains(t, recording.Delete(t.Context(), store, s.ID()), "there is no recording")
			require.ErrorContains(t, recording.Write(t.Context(), store, "../"+s.ID(), io.Discard), "there is no recording")
		})
	}
}

// Without a terminal the output has only line feeds, and a player needs carriage returns.
func TestRecording_WithoutTerminal(t *testing.T) {
	store := newMemory()
	s := begin(t, recording.New(store), false)
	write(t, s.Output(), "a\nb\n")
	s.end()
	require.NoError(t, await.Receive(t, s.done, "the end of the recording"))
	assert.Equal(t, [2]string{"o", "a\r\nb\r\n"}, events(t, text(t, store, s.ID()))[0])
}

func TestRecording_FullEndsSession(t *testing.T) {
	store := newMemory()
	s := begin(t, recording.New(store), false)
	out := s.Output()
	var err error
	for line := strings.Repeat("\x01", 32<<10); err == nil; {
		_, err = io.WriteString(out, line)
	}
	e := problemtest.Of(t, await.Receive(t, s.done, "the end of the session"))
	assert.Equal(t, runnerapi.CodeRecordingFull, e.Code)
	assert.NotEmpty(t, e.Fix)
	cast := text(t, store, s.ID())
	assert.Greater(t, len(cast), recording.MaxSession-100<<10)
	assert.Less(t, len(cast), recording.MaxSession+1000)
	all := events(t, cast)
	assert.Equal(t, [2]string{"m", "ended: the recording is full"}, all[len(all)-1])
}

func TestRecording_TooLongEndsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, recording.New(newMemory()), true)
		at := time.Now()
		e := problemtest.Of(t, <-s.done)
		assert.Equal(t, runnerapi.CodeRecordingFull, e.Code)
		assert.Equal(t, recording.MaxDuration, time.Since(at))
		s.end()
	})
}

// TestRecording_TooManyPartsEndsSession writes now and then, which makes a part each.
func TestRecording_TooManyPartsEndsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		s := begin(t, recording.New(store), true)
		out := s.Output()
		writes := 0
		for ; ; writes++ {
			if _, err := io.WriteString(out, "."); err != nil {
				break
			}
			time.Sleep(11 * time.Second)
		}
		assert.Greater(t, writes, 400)
		e := problemtest.Of(t, <-s.done)
		assert.Equal(t, runnerapi.CodeRecordingFull, e.Code)
		assert.LessOrEqual(t, len(store.parts[s.ID()]), 512)
		s.end()
	})
}

func TestRecording_StoredDuringSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		s := begin(t, recording.New(store), true)
		write(t, s.Output(), "hello")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		assert.Contains(t, text(t, store, s.ID()), "hello")
		s.end()
		require.NoError(t, <-s.done)
	})
}

// TestRecording_StoreFailureEndsSession expects that the waiting writer returns.
func TestRecording_StoreFailureEndsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		s := begin(t, recording.New(store), true)
		store.fail()
		wrote := make(chan error, 1)
		out := s.Output()
		go func() {
			_, err := io.WriteString(out, strings.Repeat("x", 1<<20))
			wrote <- err
		}()
		require.ErrorContains(t, <-s.done, "the disk is full")
		require.Error(t, <-wrote)
		_, err := io.WriteString(out, "more")
		require.Error(t, err)
		s.end()
	})
}

func TestRecording_StoredBeforeSession(t *testing.T) {
	store := newMemory()
	store.fail()
	r := recording.New(store)
	for range 100 { // no failure takes a place
		_, err := r.Begin(t.Context(), backend.Session{})
		require.ErrorContains(t, err, "the disk is full")
	}
}

func TestRecording_BoundsSessions(t *testing.T) {
	r := recording.New(newMemory())
	var last backend.Recording
	for n := range 16 {
		var err error
		last, err = r.Begin(t.Context(), backend.Session{Runner: fmt.Sprint(n / 8)})
		require.NoError(t, err)
		if n == 7 {
			_, err = r.Begin(t.Context(), backend.Session{Runner: "0"})
			require.ErrorContains(t, err, "8 sessions of this Runner")
		}
	}
	_, err := r.Begin(t.Context(), backend.Session{})
	require.ErrorContains(t, err, "16 sessions")
	last.Close()
	last.Close()
	_, err = r.Begin(t.Context(), backend.Session{})
	require.NoError(t, err)
	_, err = r.Begin(t.Context(), backend.Session{})
	require.Error(t, err, "a place is given back once")
}

// TestRecording_SharePerRunner has a Runner that records all that it may. It pushes out none of
// another's recordings, and leaves room for theirs.
func TestRecording_SharePerRunner(t *testing.T) {
	for name, one := range map[string]struct{ parts, size int }{
		"bytes": {8, recording.MaxPart - 100},
		"parts": {256, 1},
	} {
		for _, ago := range []time.Duration{50 * time.Hour, time.Hour} {
			t.Run(fmt.Sprint(name, ago), func(t *testing.T) {
				store := newMemory()
				r := recording.New(store)
				theirs := fill(t, store, 60*time.Hour, 1<<40, one.parts, one.size)
				var err error
				for n := 0; n < 100 && err == nil; n++ {
					var rec backend.Recording
					if rec, err = r.Begin(t.Context(), backend.Session{Runner: "much"}); err == nil {
						rec.Close()
						renamed := time.Now().Add(-ago).UTC().Format("20060102t150405") + rec.ID()[15:]
						delete(store.parts, rec.ID())
						for part := range one.parts {
							require.NoError(t, store.Put(t.Context(), renamed, part, make([]byte, one.size)))
						}
					}
				}
				if ago < recording.KeepAtLeast {
					require.ErrorContains(t, err, "another one of this Runner")
				} else {
					require.NoError(t, err, "its own oldest go")
				}
				assert.Contains(t, store.parts, theirs)
				rec, err := r.Begin(t.Context(), backend.Session{Runner: "little"})
				require.NoError(t, err)
				rec.Close()
				assert.Contains(t, store.parts, theirs)
			})
		}
	}
}

// fill stores a recording that began so long ago.
func fill(t *testing.T, store *memory, ago time.Duration, n, parts, size int) string {
	t.Helper()
	id := time.Now().Add(-ago).UTC().Format("20060102t150405") + fmt.Sprintf("-%016x", n)
	for part := range parts {
		require.NoError(t, store.Put(t.Context(), id, part, make([]byte, size)))
	}
	return id
}

func TestRecording_DropsOldest(t *testing.T) {
	for name, one := range map[string]struct{ parts, size int }{
		"bytes": {8, recording.MaxPart - 100},
		"parts": {256, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			count := 32
			oldest := fill(t, store, 50*time.Hour, 0, one.parts, one.size)
			older := fill(t, store, 49*time.Hour, 1, one.parts, one.size)
			old := fill(t, store, 48*time.Hour, 2, one.parts, one.size)
			last := fill(t, store, 47*time.Hour, 3, one.parts, one.size)
			for n := range count - 4 {
				fill(t, store, time.Hour, n+4, one.parts, one.size)
			}
			r := recording.New(store)
			first, err := r.Begin(t.Context(), backend.Session{})
			require.NoError(t, err)
			t.Cleanup(first.Close)
			assert.NotContains(t, store.parts, oldest)
			assert.NotContains(t, store.parts, older)
			if name == "bytes" {
				assert.Contains(t, store.parts, old, "no more goes than is in the way")
				_, err = r.Begin(t.Context(), backend.Session{})
				require.NoError(t, err, "what the first session may still record was counted")
			}
			assert.NotContains(t, store.parts, old)
			assert.NotContains(t, store.parts, last)
			for n := 1; ; n++ {
				require.Less(t, n, 20, "it never became full")
				if _, err = r.Begin(t.Context(), backend.Session{}); err != nil {
					break
				}
				fill(t, store, time.Hour, 100+n, one.parts, one.size)
			}
			require.ErrorContains(t, err, "leave no room")
			assert.GreaterOrEqual(t, len(store.parts), count-4, "nothing goes within a day")
		})
	}
}

func TestRecording_ReportsMissingPart(t *testing.T) {
	dir := t.TempDir()
	store := recording.Files{Dir: dir}
	const id = "20260101t000000-0123456789abcdef"
	for part := range 3 {
		require.NoError(t, store.Put(t.Context(), id, part, fmt.Appendln(nil, part)))
	}
	require.NoError(t, os.Remove(filepath.Join(dir, id, "000001.jsonl")))
	var b bytes.Buffer
	require.ErrorContains(t, recording.Write(t.Context(), store, id, &b), "1 of its 3 parts are missing")
	assert.Equal(t, "0\n2\n", b.String())
}

// FuzzOutput records any bytes, in two writes, and reads them back.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("h\xc3"), []byte("\xa9\x1b[0m\n"))
	f.Add([]byte{0xf0, 0x9f}, []byte{0x98, 0x80, 0xff})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		store := newMemory()
		s := begin(t, recording.New(store), true)
		out := s.Output()
		_, err := out.Write(a)
		require.NoError(t, err)
		_, err = out.Write(b)
		require.NoError(t, err)
		s.end()
		require.NoError(t, <-s.done)
		cast := text(t, store, s.ID())
		require.True(t, utf8.ValidString(cast))
		var got strings.Builder
		for _, e := range events(t, cast) {
			if e[0] == "o" {
				got.WriteString(e[1])
			}
		}
		if all := string(a) + string(b); utf8.ValidString(all) {
			require.Equal(t, all, got.String())
		}
	})
}

// FuzzInfos reads recordings that begin with anything.
func FuzzInfos(f *testing.F) {
	f.Add([]byte(`{"version":2,"pipeops":{"runner":"ci"}}`))
	f.Add([]byte("{\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		store := newMemory()
		const id = "20260101t000000-0123456789abcdef"
		store.parts[id] = [][]byte{text}
		infos, err := recording.Infos(t.Context(), store, 1)
		require.NoError(t, err)
		require.Equal(t, id, infos[0].ID)
	})
}
