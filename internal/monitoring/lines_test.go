package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

var logged = map[string]string{"namespace": "production", "app": "web", "container": "web", "pod": "web-1"}

// readAll returns the lines up to the end or an error.
func readAll(t *testing.T, next func(context.Context) (runnerapi.LogLine, error)) (texts []string, err error) {
	t.Helper()
	for {
		line, err := next(t.Context())
		if errors.Is(err, io.EOF) {
			return texts, nil
		}
		if err != nil {
			return texts, err
		}
		texts = append(texts, line.Line)
	}
}

// TestLines_QuotesSearch sends what would end a string, if it were not quoted.
func TestLines_QuotesSearch(t *testing.T) {
	f := answering(t, monitoringtest.LokiRange, func(url.Values) any { return monitoringtest.Streams() })
	for text, quoted := range map[string]string{
		`"} or {namespace="payroll"} |= "`: ` |= "\"} or {namespace=\"payroll\"} |= \""`,
		`C:\new`:                           ` |= "C:\\new"`,
		"`x`":                              " |= \"`x`\"",
		"":                                 "",
	} {
		texts, err := readAll(t, reading("loki", f).Lines(web, "web", time.Now().Add(-time.Hour), text))
		require.NoError(t, err)
		assert.Empty(t, texts)
		asked := f.Asked()
		assert.Equal(t, `{namespace="production",app="web",container="web"}`+quoted, asked[len(asked)-1].Get("query"))
	}
}

// TestLines_Paged is of a log with more lines than a request answers, and with many lines at
// one time.
func TestLines_Paged(t *testing.T) {
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	var log []monitoringtest.Line
	var want []string
	for i := range 2500 {
		at := start.Add(time.Duration(i/7) * time.Second)
		log = append(log, monitoringtest.Line{At: at, Text: strconv.Itoa(i)})
		want = append(want, strconv.Itoa(i))
	}
	f := answering(t, monitoringtest.LokiRange, func(q url.Values) any { return monitoringtest.Streams(monitoringtest.Log(q, logged, log)) })
	texts, err := readAll(t, reading("loki", f).Lines(web, "web", start, ""))
	require.NoError(t, err)
	assert.Equal(t, want, texts)
	assert.Len(t, f.Asked(), 3)
}

// TestLines_HidesForeign is of a Loki that answers what it was not asked for.
func TestLines_HidesForeign(t *testing.T) {
	now := time.Now()
	line := []monitoringtest.Line{{At: now.Add(-time.Minute), Text: "secret of another"}}
	f := answering(t, monitoringtest.LokiRange, func(q url.Values) any {
		all := []monitoringtest.Object{monitoringtest.Log(q, logged, []monitoringtest.Line{
			{At: now.Add(-time.Minute), Text: "mine"}, {At: now.Add(-30 * time.Second), Text: "mine, too"},
			{At: now.Add(-20 * time.Second), Text: "not what was asked for"},
		})}
		for label, value := range map[string]string{"namespace": "payroll", "app": "web-db", "container": "sidecar"} {
			labels := map[string]string{"namespace": "production", "app": "web", "container": "web"}
			labels[label] = value
			all = append(all, monitoringtest.Log(q, labels, line))
		}
		return monitoringtest.Streams(append(all, monitoringtest.Log(q, nil, line))...)
	})
	texts, err := readAll(t, reading("loki", f).Lines(web, "web", now.Add(-time.Hour), "mine"))
	require.NoError(t, err)
	assert.Equal(t, []string{"mine", "mine, too"}, texts)
}

func TestLines_Bounded(t *testing.T) {
	f := answering(t, monitoringtest.LokiRange, func(q url.Values) any {
		from, _ := strconv.ParseInt(q.Get("start"), 10, 64)
		var endless []monitoringtest.Line
		for i := range 1000 {
			endless = append(endless, monitoringtest.Line{At: time.Unix(0, from+int64(i)), Text: fmt.Sprint(i)})
		}
		return monitoringtest.Streams(monitoringtest.Log(q, logged, endless))
	})
	texts, err := readAll(t, reading("loki", f).Lines(web, "web", time.Now().Add(-time.Hour), ""))
	p := problemOf(t, err)
	assert.Equal(t, problem.Invalid, p.Code)
	assert.Contains(t, p.Fix, "--grep")
	assert.Len(t, texts, 50_000)
}

func TestLines_WithoutLoki(t *testing.T) {
	texts, err := readAll(t, reading("loki", nil).Lines(web, "web", time.Now(), ""))
	require.NoError(t, err)
	assert.Empty(t, texts)
}

func TestLines_FailingLoki(t *testing.T) {
	f := answering(t, monitoringtest.LokiRange, func(url.Values) any { return monitoringtest.Failure{Status: 500, Body: "out of disk\n"} })
	_, err := readAll(t, reading("loki", f).Lines(web, "web", time.Now(), ""))
	p := problemOf(t, err)
	assert.Equal(t, problem.Unavailable, p.Code)
	assert.Contains(t, p.Detail, "loki does not work")
}
