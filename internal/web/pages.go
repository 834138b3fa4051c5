package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

//go:embed templates/*.html
var templateFiles embed.FS

// Link is an entry of the navigation.
type Link struct {
	Path, Text string
	// Needs is the right that the page needs, for Page.May; empty for none.
	Needs string
}

// Page is what the layout shows, and the content of one page.
type Page struct {
	Title   string
	Current string // path of the navigation's entry that the page belongs to
	Notice  string // what was done just now
	// Live is the path of the stream that keeps the page's part "live" up to date; empty for none.
	Live string
	// Again is the page of a form that was refused without looking at it, because its session has
	// ended. The page's script keeps what was typed until then.
	Again string
	// Away says why an open page cannot be kept up to date; nil while it is.
	Away *Away
	Data any
	// May reports whether the session has a right; that of Pages if nil.
	May func(right string) bool

	// These are set by Render.
	Site   *Pages
	CSRF   string
	Signed bool
	Who    string // has signed in
}

// Away is why an open page shows an old state, and since when.
type Away struct {
	Since   time.Time
	Problem *problem.Error
}

// Pages renders pages from templates.
type Pages struct {
	Product, Place, Version string
	Nav                     []Link
	// Base is the path below which the site is; empty for its own site.
	Base string
	// Search is the path of the page that finds what the header's search field has, as "find".
	Search string
	// SignIn says how to sign in, and Restart, if not empty, the command that starts a server again
	// which has ended.
	SignIn, Restart string
	// May returns what reports whether a session has a right; nil where all have all.
	May func(ctx context.Context) func(right string) bool
	// Elsewhere names the site at which a session can be opened as well; empty for none.
	Elsewhere string

	assets *Assets
	byName map[string]*template.Template
}

// NewPages parses a page's templates from each file of a file system. Each file defines "content",
// and may define "live".
func NewPages(p Pages, files fs.FS) (*Pages, error) {
	var err error
	if p.assets, err = NewAssets(p.Base); err != nil {
		return nil, err
	}
	kit, err := template.New("kit").Funcs(functions()).Funcs(template.FuncMap{"asset": p.assets.URL}).ParseFS(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the kit's templates: %w", err)
	}
	if _, err := kit.New("log-line").Parse(lineText); err != nil {
		return nil, fmt.Errorf("parse the template of a line: %w", err)
	}
	p.byName = map[string]*template.Template{}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		t, err := kit.Clone()
		if err == nil {
			t, err = t.ParseFS(files, file)
		}
		if err != nil {
			return nil, fmt.Errorf("parse the template of a page: %w", err)
		}
		p.byName[strings.TrimSuffix(path.Base(file), ".html")] = t
	}
	p.byName["problem"] = kit
	return &p, nil
}

// Render writes a whole page.
func (p *Pages) Render(w http.ResponseWriter, r *http.Request, status int, name string, page Page) {
	text, err := p.execute(r, name, "layout", page)
	if err != nil {
		http.Error(w, "the page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // html/template has escaped it; the client is gone if this fails
}

// Shows reports whether a link of the navigation is shown.
func (p Page) Shows(l Link) bool { return l.Needs == "" || p.May == nil || p.May(l.Needs) }

// Part returns the part of a page that its stream keeps up to date.
func (p *Pages) Part(r *http.Request, name string, page Page) ([]byte, error) {
	return p.execute(r, name, "live", page)
}

// Status returns what a stream sends, beside a part of the page or alone, to say whether the open
// page is up to date.
func (p *Pages) Status(r *http.Request, page Page) ([]byte, error) {
	return p.execute(r, "problem", "status", page)
}

func (p *Pages) execute(r *http.Request, name, part string, page Page) ([]byte, error) {
	t := p.byName[name]
	if t == nil {
		return nil, fmt.Errorf("page %q not found", name)
	}
	page.Site = p
	if page.May == nil && p.May != nil {
		page.May = p.May(r.Context())
	}
	if session := SessionOf(r.Context()); session != nil {
		page.CSRF, page.Signed, page.Who = session.CSRF(), true, session.Name
	}
	var out bytes.Buffer // an error in the middle shows no half page
	if err := t.ExecuteTemplate(&out, part, page); err != nil {
		return nil, err
	}
	return []byte(printable.Lines(out.String())), nil // agents, clusters and repositories choose some of the text
}

// Error writes a page that says what is wrong, and what to do.
func (p *Pages) Error(w http.ResponseWriter, r *http.Request, err error) { p.refuse(w, r, err, "") }

// refuse is Error for a form, which the page with the path again has.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, err error, again string) {
	shown := ProblemOf(err)
	if shown.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(shown.RetryAfter/time.Second)+1))
	}
	title := shown.Title
	if shown.Status == http.StatusUnauthorized {
		title = "Sign in"
	}
	p.Render(w, r, shown.Status, "problem", Page{Title: title, Data: shown, Again: again})
}

// NotFound returns the error for a page that does not exist.
func NotFound() error {
	return problem.Errorf(problem.NotFound, "choose a page in the navigation", "the page does not exist")
}

// ProblemOf returns any error as a problem.
func ProblemOf(err error) *problem.Error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	return problem.Errorf(problem.Internal, "", "%v", err)
}

// Handler is a handler whose error becomes a page.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle returns an http.Handler for h.
func (p *Pages) Handle(h Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			p.Error(w, r, err)
		}
	})
}
