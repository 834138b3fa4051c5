package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
)

const (
	// maxPrepared is how many statements are kept compiled. There are fewer, except for those whose
	// text grows with the number of rows.
	maxPrepared = 256
	// maxPreparedText leaves out statements with many rows, whose text differs for each number.
	maxPreparedText = 2 << 10
)

// prepared runs statements that are compiled once for each connection. Compiling is half the cost
// of a small statement, and the driver does it each time.
type prepared struct {
	db *sql.DB

	mu    sync.RWMutex
	known map[string]*sql.Stmt
	// wanted holds texts that came in a transaction, which cannot prepare a statement that outlives
	// it.
	wanted map[string]struct{}
	closed bool
}

func newPrepared(db *sql.DB) *prepared {
	return &prepared{db: db, known: map[string]*sql.Stmt{}, wanted: map[string]struct{}{}}
}

func (p *prepared) lookup(query string) *sql.Stmt {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[query]
}

// statement returns nil for a text that is not kept compiled.
func (p *prepared) statement(ctx context.Context, query string) *sql.Stmt {
	if stmt := p.lookup(query); stmt != nil || !p.want(query) {
		return stmt
	}
	p.prepareWanted(ctx)
	return p.lookup(query)
}

// want requests that a statement is compiled before the next transaction, if that is worth it.
func (p *prepared) want(query string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(query) > maxPreparedText || len(p.known)+len(p.wanted) >= maxPrepared {
		return false
	}
	p.wanted[query] = struct{}{}
	return true
}

// prepareWanted compiles without the lock: it waits for a connection, and the goroutine that has it
// may need the lock.
func (p *prepared) prepareWanted(ctx context.Context) {
	p.mu.Lock()
	wanted := slices.Collect(maps.Keys(p.wanted))
	clear(p.wanted)
	p.mu.Unlock()
	for _, query := range wanted {
		stmt, err := p.db.PrepareContext(ctx, query)
		if err != nil {
			continue // the caller that runs it gets the error
		}
		p.keep(query, stmt)
	}
}

func (p *prepared) keep(query string, stmt *sql.Stmt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.known[query] != nil { // another goroutine was as quick
		_ = stmt.Close()
		return
	}
	p.known[query] = stmt
}

func (p *prepared) begin(ctx context.Context) (*sql.Tx, error) {
	if p.wants() {
		p.prepareWanted(ctx)
	}
	return p.db.BeginTx(ctx, nil)
}

func (p *prepared) wants() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.wanted) > 0
}

// ExecContext implements querier.
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := p.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // it is kept, until close
		return stmt.ExecContext(ctx, args...)
	}
	return p.db.ExecContext(ctx, query, args...)
}

// QueryContext implements querier.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := p.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // it is kept, until close
		return stmt.QueryContext(ctx, args...)
	}
	return p.db.QueryContext(ctx, query, args...)
}

// QueryRowContext implements querier.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // it is kept, until close
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.db.QueryRowContext(ctx, query, args...)
}

func (p *prepared) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, stmt := range p.known {
		errs = append(errs, stmt.Close())
	}
	clear(p.known)
	p.closed = true
	return errors.Join(append(errs, p.db.Close())...)
}

// preparedTx is the same in a transaction.
type preparedTx struct {
	*sql.Tx
	p *prepared
}

func (t preparedTx) statement(ctx context.Context, query string) *sql.Stmt {
	if stmt := t.p.lookup(query); stmt != nil {
		return t.StmtContext(ctx, stmt)
	}
	t.p.want(query)
	return nil
}

// ExecContext implements querier.
func (t preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := t.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // the transaction's end closes it
		return stmt.ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

// QueryContext implements querier.
func (t preparedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := t.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // the transaction's end closes it
		return stmt.QueryContext(ctx, args...)
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

// QueryRowContext implements querier.
func (t preparedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := t.statement(ctx, query); stmt != nil { //nolint:sqlclosecheck // the transaction's end closes it
		return stmt.QueryRowContext(ctx, args...)
	}
	return t.Tx.QueryRowContext(ctx, query, args...)
}
