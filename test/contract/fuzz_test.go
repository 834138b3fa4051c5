package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/test/contract"
)

// usualRequests is how many requests are sent unless requestsVariable says otherwise. The release
// suite sends 20 000.
const (
	usualRequests    = 1_000
	requestsVariable = "PIPEOPS_TEST_CONTRACT_REQUESTS"
	seedVariable     = "PIPEOPS_TEST_CONTRACT_SEED"
	workers          = 8
)

func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, variable)
		return n
	}
	return usual
}

// TestRunnerAPI_AnswersMatchOpenAPI sends requests that are generated from the document: the first
// part under the default policy, the rest under one that allows all.
func TestRunnerAPI_AnswersMatchOpenAPI(t *testing.T) {
	s := start(t)
	doc := s.document(t)
	count, seed := number(t, requestsVariable, usualRequests), number(t, seedVariable, 1)
	generator := contract.NewGenerator(doc, uint64(seed))
	all := newFuzzer(t, s, doc, s.url(""))
	all.send(t, generator, count/4)
	s.allowAll(t)
	all.send(t, generator, count-count/4)
	all.sum(t, count, seed)
}

// TestControlPlaneAPI_AnswersMatchOpenAPI is the same for the calls that Runners make
// there.
func TestControlPlaneAPI_AnswersMatchOpenAPI(t *testing.T) {
	s := start(t)
	base := strings.TrimSuffix(s.credentials.ControlPlane, "/")
	doc := s.read(t, base+server.OpenAPIPath)
	count, seed := number(t, requestsVariable, usualRequests)/5, number(t, seedVariable, 1)
	generator := contract.NewGenerator(doc, uint64(seed))
	generator.Names = map[string][]string{"agent": {s.agentID, "shop", "none", ""}, "id": {s.agentID, s.agentID, s.agentID, "none", ".", "..", "%2e%2e", ""}}
	all := newFuzzer(t, s, doc, base)
	all.send(t, generator, count)
	all.sum(t, count, seed)
}

func newFuzzer(t *testing.T, s *system, doc *contract.Document, base string) *fuzzer {
	t.Helper()
	return &fuzzer{doc: doc, base: base, clients: []*http.Client{s.client(t, true), s.client(t, false)}, seen: map[string]int{}}
}

// sum tells what was seen, and wants each call of the document.
func (f *fuzzer) sum(t *testing.T, count, seed int) {
	t.Helper()
	t.Logf("%d requests of seed %d, %d kinds of answers: %v", count, seed, len(f.seen), f.seen)
	for _, op := range f.doc.Operations {
		assert.NotZero(t, f.seen[op.ID], "%s was never sent", op.ID)
	}
}

// document is what the agent serves.
func (s *system) document(t *testing.T) *contract.Document {
	t.Helper()
	return s.read(t, s.url("/openapi.json"))
}

func (s *system) read(t *testing.T, address string) *contract.Document {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	resp, err := s.client(t, true).Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	doc, err := contract.Read(raw)
	require.NoError(t, err)
	return doc
}

type fuzzer struct {
	doc     *contract.Document
	base    string         // of URLs
	clients []*http.Client // HTTP/2, HTTP/1.1

	mu   sync.Mutex
	seen map[string]int // by operation, and by status
}

func (f *fuzzer) send(t *testing.T, g *contract.Generator, count int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(workers)
	for n := range count {
		r := g.Next()
		group.Go(func() error {
			f.one(t, r, f.clients[n%len(f.clients)])
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// patience is how long a call may take, far past what the agent gives one.
const patience = 5 * time.Minute

func (f *fuzzer) one(t *testing.T, r contract.Request, client *http.Client) {
	answer, err := f.exchange(r, client)
	if err == nil {
		f.mu.Lock()
		f.seen[r.Op.ID]++
		f.seen[strconv.Itoa(answer.Status)]++
		err = f.doc.Check(answer)
		f.mu.Unlock()
	}
	if err == nil && answer.Status == http.StatusInternalServerError && r.Op.ID != "kubernetes-api" {
		err = errors.New("a bug, by its own words")
	}
	if err != nil {
		t.Errorf("%v\n%s %s?%s\n%v\n%.600s\nanswered %d: %.600s", err, r.Method, r.Path, r.RawQuery(), r.Header, r.Body, answer.Status, answer.Body)
	}
}

func (f *fuzzer) exchange(r contract.Request, client *http.Client) (contract.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, f.base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return contract.Answer{}, fmt.Errorf("make a request: %w", err)
	}
	req.URL.RawQuery, req.Header = r.RawQuery(), r.Header
	resp, err := client.Do(req)
	if err != nil {
		return contract.Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := contract.Answer{
		Method: r.Method, Path: req.URL.EscapedPath(), Status: resp.StatusCode, Header: resp.Header,
		DryRun: r.DryRun(),
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		answer.Body, err = firstEvent(resp.Body, r.Method)
		return answer, err
	}
	answer.Body, err = io.ReadAll(resp.Body)
	return answer, err
}

// firstEvent reads no more: without a node nothing settles, and the stream continues.
func firstEvent(body io.Reader, method string) ([]byte, error) {
	var read []byte
	for method != http.MethodHead && !bytes.Contains(read, []byte("\n\n")) {
		part := make([]byte, 64<<10)
		n, err := body.Read(part)
		read = append(read, part[:n]...)
		if err != nil {
			return read, err
		}
	}
	return read, nil
}
