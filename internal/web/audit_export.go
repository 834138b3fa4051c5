package web

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
)

const (
	// maxExport is how many calls a file has at most.
	maxExport = 10_000
	// exportPage is how many calls are read at a time.
	exportPage = 1000
	// exportTimeout bounds an export. It is less than what servers give an answer.
	exportTimeout = 45 * time.Second
)

// exporter writes calls into a file.
type exporter interface {
	kind() string
	begin() error
	call(c audit.Call) error
	// end gets where older calls begin that the file does not have; 0 for none.
	end(older int64) error
}

// Export writes the calls of a query into a file, newest first. A file that breaks off is a failed
// download, and not a shorter log.
func (s AuditSearch) Export(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
	defer cancel()
	filter, wrong := auditFilter(r.URL.Query())
	filter.Limit = exportPage
	next := func() (audit.Found, error) {
		if wrong != "" {
			return audit.Found{}, nil
		}
		found, err := s.Read(ctx, filter)
		filter.Before = found.Older
		return found, err
	}
	found, err := next()
	if err != nil {
		return err
	}
	format := r.URL.Query().Get("format")
	out := exporter(&csvExport{csv.NewWriter(w), strings.ToLower(s.Who)})
	if format == "json" {
		out = &jsonExport{w: w, item: s.Item}
	}
	w.Header().Set("Content-Type", out.kind())
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s"`, s.Name, format))
	if err := write(out, found, next); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func write(out exporter, found audit.Found, next func() (audit.Found, error)) error {
	if err := out.begin(); err != nil {
		return err
	}
	for written := 0; ; {
		for _, c := range found.Items {
			if err := out.call(c); err != nil {
				return err
			}
		}
		written += len(found.Items)
		if found.Older == 0 || written+exportPage > maxExport {
			return out.end(found.Older)
		}
		var err error
		if found, err = next(); err != nil {
			return err
		}
	}
}

type csvExport struct {
	*csv.Writer
	who string
}

func (e *csvExport) kind() string { return "text/csv; charset=utf-8" }

func (e *csvExport) begin() error {
	return e.Write([]string{"number", "began", "time", e.who, "command", "about", "outcome", "status", "code", "message", "durationMs", "requestId", "arguments"})
}

func (e *csvExport) call(c audit.Call) error {
	row := []string{
		strconv.FormatInt(c.Seq, 10), strconv.FormatInt(c.Began, 10), c.Time.UTC().Format(time.RFC3339Nano), c.By(), c.Command, c.About(),
		string(c.Outcome), strconv.Itoa(c.Status), string(c.Code), c.Message, strconv.FormatInt(c.Millis, 10), c.RequestID, string(c.Arguments),
	}
	for i, cell := range row {
		row[i] = inert(cell)
	}
	return e.Write(row)
}

func (e *csvExport) end(int64) error {
	e.Flush()
	return e.Error()
}

// inert returns a cell that no spreadsheet takes for a formula.
func inert(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

type jsonExport struct {
	w    io.Writer
	item func(audit.Call) any
	some bool
}

func (e *jsonExport) kind() string { return "application/json" }

func (e *jsonExport) begin() error {
	_, err := io.WriteString(e.w, `{"items":[`)
	return err
}

func (e *jsonExport) call(c audit.Call) error {
	item := any(c)
	if e.item != nil {
		item = e.item(c)
	}
	text, err := json.Marshal(item)
	if err != nil {
		return err
	}
	if e.some {
		text = append([]byte(","), text...)
	}
	e.some = true
	_, err = e.w.Write(append(text, '\n'))
	return err
}

func (e *jsonExport) end(older int64) error {
	_, err := fmt.Fprintf(e.w, `],"older":%d}`+"\n", older)
	return err
}
