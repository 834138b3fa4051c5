package web

import (
	"bufio"
	"context"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const (
	// maxFind bounds the text that is searched for.
	maxFind = 200
	// downloadTimeout bounds a download of a log.
	downloadTimeout = 5 * time.Minute
)

// tails are how many last lines of each pod a log page can begin with. The first is the default.
var tails = []int{200, 1000, 5000}

// LogView is what a person wants to see of a log. It is the query of a log page.
type LogView struct {
	Find, Level, Pod string // empty for all
	Tail             int    // last lines of each pod
	Previous         bool   // of the run before the last restart
	NoWrap           bool
}

// LogViewOf reads a query. What it does not understand is left out.
func LogViewOf(query url.Values) LogView {
	v := LogView{
		Find: printable.Shorten(strings.TrimSpace(query.Get("find")), maxFind), Level: query.Get("level"), Pod: query.Get("pod"),
		Previous: query.Get("previous") == "true", NoWrap: query.Get("nowrap") == "true",
	}
	if _, known := severity[v.Level]; !known {
		v.Level = ""
	}
	if v.Tail, _ = strconv.Atoi(query.Get("tail")); !slices.Contains(tails, v.Tail) {
		v.Tail = tails[0]
	}
	return v
}

// Matches reports whether a line is shown. The script log.js does the same in the browser.
func (v LogView) Matches(l Line) bool {
	return (v.Pod == "" || v.Pod == l.Pod) && (v.Level == "" || severity[l.Level()] >= severity[v.Level]) &&
		strings.Contains(strings.ToLower(l.Line), strings.ToLower(v.Find))
}

// Narrows reports whether some lines are not shown.
func (v LogView) Narrows() bool { return v.Find != "" || v.Level != "" || v.Pod != "" }

// LogPage is what a log page shows: template "log-page".
type LogPage struct {
	LogView
	Up       Link
	Path     string   // of the page, without its query
	Hidden   []Hidden // the rest of its query
	Download string   // path of the log as a file, without its query
	Live     string   // path of the lines that follow; empty for none
	Lines    []Line
	Pods     []string // that have written some of them
}

// Tails returns the numbers of lines to choose from.
func (LogPage) Tails() []int { return tails }

// Levels returns the levels to choose from.
func (LogPage) Levels() []Hidden {
	return []Hidden{{"", "All levels"}, {levelWarning, "Warnings and errors"}, {levelError, "Errors"}}
}

// Read adds the lines of a log, the newest ones if there are many. Those that follow are at the
// path live.
func (p *LogPage) Read(now time.Time, live string, read func(emit func(Line) error) error) error {
	last, pods := now, map[string]bool{}
	err := read(func(l Line) error {
		last, pods[l.Pod] = l.Time, true
		if p.Matches(l) {
			p.Lines = append(p.Lines, l)
		}
		if len(p.Lines) >= 2*maxFollowed {
			p.Lines = slices.Clone(p.Lines[maxFollowed:])
		}
		return nil
	})
	p.Lines = p.Lines[max(len(p.Lines)-maxFollowed, 0):]
	if p.Pod != "" {
		pods[p.Pod] = true
	}
	p.Pods = slices.Sorted(maps.Keys(pods))
	if !p.Previous {
		p.Live = p.follow(live, last)
	}
	return err
}

// follow returns the path of the selected lines after the last one that the page has.
func (p *LogPage) follow(live string, last time.Time) string {
	q := url.Values{"after": {last.Format(time.RFC3339Nano)}}
	for name, value := range map[string]string{"find": p.Find, "level": p.Level, "pod": p.Pod} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, h := range p.Hidden {
		q.Set(h.Name, h.Value)
	}
	return live + "?" + q.Encode()
}

// DownloadLog sends the lines of a log as a file. An error before the first line is returned; a
// later one is the file's last line.
func (v LogView) DownloadLog(ctx context.Context, w http.ResponseWriter, name string, read func(ctx context.Context, emit func(Line) error) error) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	out := bufio.NewWriter(stalling{w, http.NewResponseController(w)})
	begun := false
	begin := func() {
		begun = true
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + ".log"}))
	}
	err := read(ctx, func(l Line) error {
		if !v.Matches(l) {
			return nil
		}
		if !begun {
			begin()
		}
		_, err := out.WriteString(l.Time.UTC().Format(time.RFC3339Nano) + " " + l.Pod + " " + printable.Text(l.Line) + "\n")
		return err
	})
	if err != nil && !begun {
		return err
	}
	if !begun {
		begin()
	}
	if err != nil {
		_, _ = out.WriteString("The log broke off: " + printable.Text(ProblemOf(err).Detail) + "\n") // the client may be gone
	}
	_ = out.Flush() // the client may be gone
	return nil
}

// stalling is a response whose reader may take a while, but not stop.
type stalling struct {
	http.ResponseWriter
	conn *http.ResponseController
}

// Write implements io.Writer.
func (s stalling) Write(text []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(streamStall)) // tests have none
	return s.ResponseWriter.Write(text)
}
