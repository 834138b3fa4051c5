package node

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestBlobStore(t *testing.T) {
	own, shared := t.TempDir(), t.TempDir()
	store := blobStore{dirs: []string{own, shared}}
	hash, size, err := v1.SHA256(strings.NewReader("layer"))
	require.NoError(t, err)

	_, err = store.Stat(t.Context(), "", hash)
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = store.Get(t.Context(), "", hash)
	require.ErrorIs(t, err, registry.ErrNotFound)

	require.NoError(t, store.Put(t.Context(), "", hash, io.NopCloser(strings.NewReader("layer"))))
	for _, dirs := range [][]string{{own, shared}, {shared, own}} { // found in whichever it is
		store := blobStore{dirs: dirs}
		got, err := store.Stat(t.Context(), "", hash)
		require.NoError(t, err)
		require.Equal(t, size, got)
		content, err := store.Get(t.Context(), "", hash)
		require.NoError(t, err)
		text, err := io.ReadAll(content)
		require.NoError(t, errors.Join(err, content.Close()))
		require.Equal(t, "layer", string(text))
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("digest does not match") }

func TestBlobStore_NoHalfBlobs(t *testing.T) {
	store := blobStore{dirs: []string{t.TempDir()}}
	hash, _, err := v1.SHA256(strings.NewReader("layer"))
	require.NoError(t, err)
	require.Error(t, store.Put(t.Context(), "", hash, io.NopCloser(brokenReader{})))
	left, err := filepath.Glob(filepath.Join(store.dirs[0], "upload-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	events, err := Events(dir)
	require.NoError(t, err)
	require.Empty(t, events)
	journal, err := openJournal(dir)
	require.NoError(t, err)
	require.NoError(t, journal.add(Started, "etcd", ""))
	require.NoError(t, journal.add(Failed, "etcd", "exited with code 1"))
	_, err = journal.file.WriteString(`{"at":"2026-`)
	require.NoError(t, err)
	events, err = Events(dir)
	require.NoError(t, err)
	require.Len(t, events, 2, "the line that is still being written is not read")
	require.Equal(t, Failed, events[1].Kind)
	require.Equal(t, "exited with code 1", events[1].Detail)
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"at":"2026-11-21T08:13:08Z","kind":"ready","name":"etcd"}` + "\n"))
	f.Add([]byte("null\n[]\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, eventsFile), content, 0o600))
		events, err := Events(dir)
		if err == nil {
			require.LessOrEqual(t, len(events), bytes.Count(content, []byte("\n")))
		}
	})
}

func TestProbes(t *testing.T) {
	server := httptest.NewTLSServer(registry.New())
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))

	require.NoError(t, Probe{}.attempt(t.Context()))
	require.NoError(t, Probe{URL: server.URL + "/v2/", CAFile: ca}.attempt(t.Context()))
	require.ErrorContains(t, Probe{URL: server.URL + "/nothing", CAFile: ca}.attempt(t.Context()), "404")
	require.NoError(t, Probe{Network: "tcp", Address: server.Listener.Addr().String()}.attempt(t.Context()))

	socket := filepath.Join(t.TempDir(), "socket")
	probe := Probe{Network: "unix", Address: socket}
	require.Error(t, probe.attempt(t.Context()))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	require.NoError(t, probe.attempt(t.Context()))
	require.NoError(t, listener.Close())
}

func TestDescribe(t *testing.T) {
	require.Equal(t, "exited with code 3", describe(unix.WaitStatus(3<<8)))
	require.Equal(t, "killed by SIGKILL", describe(unix.WaitStatus(unix.SIGKILL)))
}
