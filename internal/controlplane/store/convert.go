package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// micros returns how a time is kept; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// moment scans what micros wrote.
type moment struct{ t *time.Time }

func (m moment) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a time is kept as %T", v)
	}
	*m.t = time.Time{}
	if n != 0 {
		*m.t = time.UnixMicro(n).UTC()
	}
	return nil
}

// document scans JSON in text.
type document struct{ v any }

func (d document) Scan(v any) error {
	switch text := v.(type) {
	case string:
		return json.Unmarshal([]byte(text), d.v)
	case []byte:
		return json.Unmarshal(text, d.v)
	}
	return fmt.Errorf("a document is kept as %T", v)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // only maps of strings and structs of numbers come here
		panic("store: " + err.Error())
	}
	return string(text)
}

type scanner interface{ Scan(dest ...any) error }

// one scans a single row, or returns ErrNotFound.
func one[T any](row scanner, scan func(scanner, *T) error) (T, error) {
	var v T
	err := scan(row, &v)
	if errors.Is(err, sql.ErrNoRows) {
		return v, ErrNotFound
	}
	if err != nil {
		return v, failure(err)
	}
	return v, nil
}

// all scans the rows of a query.
func all[T any](ctx context.Context, q querier, scan func(scanner, *T) error, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, failure(err)
	}
	defer func() { _ = rows.Close() }()
	var list []T
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, failure(err)
		}
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		return nil, failure(err)
	}
	return list, nil
}

// exec runs a statement and returns how many rows it changed.
func (t table) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, failure(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, failure(err)
	}
	return n, nil
}

// execOne runs a statement that must change a row.
func (t table) execOne(ctx context.Context, query string, args ...any) error {
	n, err := t.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}
