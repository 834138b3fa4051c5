package audit_test

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

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func record(n int) runnerapi.AuditRecord {
	return runnerapi.AuditRecord{
		Time: time.Unix(int64(n), 0).UTC(), Runner: "ci", Command: "put-app", Namespace: "shop", Name: fmt.Sprint("web-", n),
		Arguments: []byte(`{"body":{"image":"a<b"}}`), Outcome: runnerapi.AuditDone, Status: 202,
	}
}

// running keeps records until the function that it answers is called.
func running(t *testing.T, l *audit.Log) (stop func()) {
	t.Helper()
	return await.Background(t, "the log", l.Run)
}

// written is a log of some records, one batch for each number in sizes.
func written(t *testing.T, sizes ...int) audit.Files {
	t.Helper()
	store := audit.Files{Dir: t.TempDir()}
	n := 0
	for _, size := range sizes {
		l := audit.New(store, "r1", zerolog.Nop())
		for range size {
			n++
			l.Record(record(n))
		}
		running(t, l)()
	}
	return store
}

func verify(t *testing.T, s audit.Store, noted runnerapi.AuditHead) audit.Report {
	t.Helper()
	r, err := audit.Verify(t.Context(), s, noted)
	require.NoError(t, err)
	return r
}

func TestAudit_ChainsRecords(t *testing.T) {
	store := written(t, 3, 20, 1)
	r := verify(t, store, runnerapi.AuditHead{})
	assert.Empty(t, r.Problems)
	assert.Equal(t, 24, r.Records)
	assert.EqualValues(t, 1, r.First)
	assert.EqualValues(t, 24, r.Head.Seq)

	list, err := audit.Read(t.Context(), store, 20, 3)
	require.NoError(t, err)
	assert.Equal(t, r.Head, list.Head)
	require.Len(t, list.Items, 3)
	for i, got := range list.Items {
		assert.EqualValues(t, 21+i, got.Seq)
		assert.Equal(t, fmt.Sprint("web-", 21+i), got.Name)
		assert.Equal(t, "r1", got.Replica)
	}
	assert.Equal(t, list.Items[0].Hash, list.Items[1].Prev)
}

func TestVerify_FindsTampering(t *testing.T) {
	edit := func(first int64, change func([]string) []string) func(*testing.T, audit.Files) {
		return func(t *testing.T, s audit.Files) {
			text, err := s.Get(t.Context(), first)
			require.NoError(t, err)
			require.NoError(t, s.Delete(t.Context(), first))
			lines := change(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
			put, err := s.Put(t.Context(), first, []byte(strings.Join(lines, "\n")+"\n"))
			require.NoError(t, err)
			require.True(t, put)
		}
	}
	remove := func(firsts ...int64) func(*testing.T, audit.Files) {
		return func(t *testing.T, s audit.Files) {
			for _, first := range firsts {
				require.NoError(t, s.Delete(t.Context(), first))
			}
		}
	}
	rename := func(from, to string) func(*testing.T, audit.Files) {
		return func(t *testing.T, s audit.Files) {
			require.NoError(t, os.Rename(filepath.Join(s.Dir, from), filepath.Join(s.Dir, to)))
		}
	}
	for name, c := range map[string]struct {
		tamper func(*testing.T, audit.Files)
		says   string
	}{
		"nothing":                   {func(*testing.T, audit.Files) {}, ""},
		"a record changed":          {edit(4, func(l []string) []string { l[1] = strings.Replace(l[1], "web-5", "web-6", 1); return l }), "record 5 was changed"},
		"the last of a batch":       {edit(4, func(l []string) []string { l[2] = strings.Replace(l[2], "ci", "me", 1); return l }), "record 6 was changed"},
		"the very last":             {edit(7, func(l []string) []string { l[1] = strings.Replace(l[1], "ci", "me", 1); return l }), "record 8 was changed"},
		"the last, with its hash":   {rehash(4, 2), "record 6 was changed, or what follows it"},
		"a record removed":          {edit(4, func(l []string) []string { return append(l[:1], l[2:]...) }), "record 6 follows record 4"},
		"records in another order":  {edit(4, func(l []string) []string { l[0], l[1] = l[1], l[0]; return l }), "record 4 follows record 5"},
		"a batch removed":           {remove(4), "records 4 to 6 were removed"},
		"the first removed":         {remove(1), "records before 4 were removed"},
		"batches in another order":  {rename("audit-000000000001.jsonl", "audit-000000000009.jsonl"), "begins with record 1"},
		"the end removed":           {remove(7), "records at its end were removed"},
		"all removed":               {remove(1, 4, 7), "records at its end were removed"},
		"garbage":                   {edit(4, func([]string) []string { return []string{"garbage", "x"} }), "makes no sense"},
		"the end's hash, noted too": {rehash(7, 1), "not the one that was noted"},
	} {
		t.Run(name, func(t *testing.T) {
			store := written(t, 3, 3, 2)
			noted := verify(t, store, runnerapi.AuditHead{}).Head
			c.tamper(t, store)
			r := verify(t, store, noted)
			if c.says == "" {
				assert.Empty(t, r.Problems)
				return
			}
			assert.Contains(t, strings.Join(r.Problems, "\n"), c.says)
		})
	}
}

// rehash changes a record as somebody would who knows how the log is kept.
func rehash(first int64, line int) func(*testing.T, audit.Files) {
	return func(t *testing.T, s audit.Files) {
		text, err := s.Get(t.Context(), first)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		lines[line] = strings.Replace(lines[line], `"ci"`, `"me"`, 1)
		lines[len(lines)-1] = runnerapi.AuditHash([]byte(lines[line]))
		require.NoError(t, s.Delete(t.Context(), first))
		_, err = s.Put(t.Context(), first, []byte(strings.Join(lines, "\n")+"\n"))
		require.NoError(t, err)
	}
}

// TestAudit_ReplicasShareLog has several write at the same time.
func TestAudit_ReplicasShareLog(t *testing.T) {
	store := audit.Files{Dir: t.TempDir()}
	var all sync.WaitGroup
	const replicas, each = 3, 50
	for n := range replicas {
		l := audit.New(store, fmt.Sprint("r", n), zerolog.Nop())
		stop := running(t, l)
		all.Go(func() {
			for i := range each {
				l.Record(record(i))
				if i%7 == 0 { // so that batches differ
					await.Receive(t, l.Grown(), "records are kept")
				}
			}
			stop()
		})
	}
	all.Wait()
	r := verify(t, store, runnerapi.AuditHead{})
	assert.Empty(t, r.Problems)
	assert.Equal(t, replicas*each, r.Records)
}

// shaky is a store that fails as a cluster does: before or after it wrote.
type shaky struct {
	audit.Files
	mu    sync.Mutex
	fails []string
}

func (s *shaky) Put(ctx context.Context, first int64, text []byte) (bool, error) {
	s.mu.Lock()
	how := ""
	if len(s.fails) > 0 {
		how, s.fails = s.fails[0], s.fails[1:]
	}
	s.mu.Unlock()
	if how == "before" {
		return false, errors.New("the cluster is away")
	}
	put, err := s.Files.Put(ctx, first, text)
	if how == "after" {
		return false, errors.New("the answer was lost")
	}
	return put, err
}

func TestAudit_StoreFailure(t *testing.T) {
	store := &shaky{Files: audit.Files{Dir: t.TempDir()}, fails: []string{"before", "after", "before"}}
	l := audit.New(store, "r1", zerolog.Nop())
	running(t, l)
	for n := range 3 {
		l.Record(record(n + 1))
		await.Receive(t, l.Grown(), "the record is kept")
	}
	r := verify(t, store, runnerapi.AuditHead{})
	assert.Empty(t, r.Problems)
	assert.Equal(t, 3, r.Records)
}

// away is a store that loses the answer to a write, as the agent stops, and then fails once.
type away struct {
	audit.Files
	stop context.CancelFunc
	lost bool
}

func (s *away) Put(ctx context.Context, first int64, text []byte) (bool, error) {
	put, err := s.Files.Put(ctx, first, text)
	if s.stop == nil {
		return put, err
	}
	s.stop()
	s.stop, s.lost = nil, true
	return false, errors.New("the answer was lost")
}

func (s *away) Get(ctx context.Context, first int64) ([]byte, error) {
	if s.lost {
		s.lost = false
		return nil, errors.New("the cluster is away")
	}
	return s.Files.Get(ctx, first)
}

// TestAudit_KeepsAfterLostBatch loses a batch as the agent stops.
func TestAudit_KeepsAfterLostBatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := &away{Files: audit.Files{Dir: t.TempDir()}, stop: cancel}
	l := audit.New(store, "r1", zerolog.Nop())
	for n := range 20 {
		l.Record(record(n))
	}
	require.NoError(t, l.Run(ctx))
	assert.Equal(t, 20, verify(t, store, runnerapi.AuditHead{}).Records)
}

// TestAudit_CountsDropped fills the queue of a log that is not written.
func TestAudit_CountsDropped(t *testing.T) {
	store := audit.Files{Dir: t.TempDir()}
	l := audit.New(store, "r1", zerolog.Nop())
	for n := range 1024 + 5 {
		l.Record(record(n))
	}
	running(t, l)()
	list, err := audit.Read(t.Context(), store, 0, 5000)
	require.NoError(t, err)
	require.Len(t, list.Items, 1024)
	assert.EqualValues(t, 5, list.Items[0].Lost)
}

// TestAudit_Bounded goes beyond what is kept; the rest is whole.
func TestAudit_Bounded(t *testing.T) {
	store := audit.Files{Dir: t.TempDir()}
	head := runnerapi.AuditHead{}
	for first := int64(1); first <= audit.Keep+10; first++ { // one record each, as in a quiet cluster
		l := audit.New(store, "r1", zerolog.Nop())
		if first <= audit.Keep {
			line := fmt.Sprintf(`{"seq":%d,"prev":%q,"time":"2026-01-01T00:00:00Z","replica":"r","runner":"ci","requestId":"","command":"put-app","outcome":"done","status":200,"durationMs":1}`, first, head.Hash)
			head = runnerapi.AuditHead{Seq: first, Hash: runnerapi.AuditHash([]byte(line))}
			require.NoError(t, os.WriteFile(filepath.Join(store.Dir, fmt.Sprintf("audit-%012d.jsonl", first)), []byte(line+"\n"+head.Hash+"\n"), 0o600))
			continue
		}
		l.Record(record(1))
		running(t, l)()
	}
	all, err := store.List(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, len(all), audit.Keep)
	assert.Positive(t, all[0]-1, "the oldest went")
	assert.Empty(t, verify(t, store, head).Problems, "which is not a problem")
}

func TestAudit_FollowsHead(t *testing.T) {
	store := written(t, 3, 3, 2)
	at := func(seq int64) runnerapi.AuditHead {
		list, err := audit.Read(t.Context(), store, seq-1, 1)
		require.NoError(t, err)
		return runnerapi.AuditHead{Seq: seq, Hash: list.Items[0].Hash}
	}
	for name, c := range map[string]struct {
		head   runnerapi.AuditHead
		limit  int
		seqs   []int64
		broken bool
	}{
		"from the beginning":   {runnerapi.AuditHead{}, 4, []int64{1, 2, 3, 4}, false},
		"in a batch":           {at(5), 10, []int64{6, 7, 8}, false},
		"at a batch's end":     {at(3), 10, []int64{4, 5, 6, 7, 8}, false},
		"at the end":           {at(8), 10, nil, false},
		"another log":          {runnerapi.AuditHead{Seq: 5, Hash: "x"}, 2, []int64{7, 8}, true},
		"beyond the log's end": {runnerapi.AuditHead{Seq: 50, Hash: "x"}, 2, []int64{7, 8}, true},
	} {
		t.Run(name, func(t *testing.T) {
			lines, broken, err := audit.Following(t.Context(), store, c.head, c.limit)
			require.NoError(t, err)
			assert.Equal(t, c.broken, broken)
			var seqs []int64
			for _, line := range lines {
				r, err := runnerapi.DecodeAuditRecord([]byte(line))
				require.NoError(t, err)
				seqs = append(seqs, r.Seq)
			}
			assert.Equal(t, c.seqs, seqs)
		})
	}
}

func FuzzDecodeBatch(f *testing.F) {
	_, text, err := audit.Link(runnerapi.AuditHead{}, []runnerapi.AuditRecord{record(1), record(2)})
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("{}\nx\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := audit.DecodeBatch(text)
		if err != nil {
			return
		}
		for i, r := range records {
			if r.Hash == "" || i > 0 && (r.Prev != records[i-1].Hash || r.Seq != records[i-1].Seq+1) {
				t.Fatalf("taken, though it does not hold together: %+v", records)
			}
		}
	})
}

// TestAudit_AwaitedIsKept expects the record before Keep returns. If the store cannot be written,
// Keep returns an error in time, and the record is not written later.
func TestAudit_AwaitedIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // in the directory's place
	store := audit.Files{Dir: dir}
	l := audit.New(store, "r1", zerolog.Nop())
	running(t, l)
	given, give := context.WithCancel(t.Context())
	l.Record(record(1)) // which is tried again and again, ahead of what follows
	done := make(chan error, 1)
	go func() { done <- l.Keep(given, record(2)) }()
	await.Until(t, "the first is being tried", func() bool { return l.Waiting() <= 1 })
	give()
	require.ErrorIs(t, await.Receive(t, done, "the end of the wait"), context.Canceled)

	require.NoError(t, os.Remove(dir))
	require.NoError(t, l.Keep(t.Context(), record(3)))
	list, err := audit.Read(t.Context(), store, 0, 10)
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	assert.Equal(t, "web-3", list.Items[len(list.Items)-1].Name, "it is there when Keep returns")
	assert.Empty(t, verify(t, store, runnerapi.AuditHead{}).Problems)
}

func TestParseHead(t *testing.T) {
	hash := runnerapi.AuditHash(nil)
	head, err := audit.ParseHead("12:" + hash)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.AuditHead{Seq: 12, Hash: hash}, head)
	head, err = audit.ParseHead("")
	require.NoError(t, err)
	assert.Zero(t, head)
	for _, bad := range []string{"12", "12:", "12:abc", "0:" + hash, "-1:" + hash, "x:" + hash, ":" + hash, "12:" + hash + "0"} {
		_, err = audit.ParseHead(bad)
		require.ErrorContains(t, err, "write it as NUMBER:HASH", bad)
	}
}
