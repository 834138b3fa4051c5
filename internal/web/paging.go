package web

import (
	"maps"
	"net/url"
	"strconv"
)

// PageSize is how many rows a table shows at a time.
const PageSize = 50

// Rows is one page of a longer table.
type Rows[T any] struct {
	Items      []T
	From, To   int // of Total, from 1
	Total      int
	Prev, Next string // queries of the pages beside this one; empty for none
}

// Paged returns the page that a query names.
func Paged[T any](all []T, query url.Values) Rows[T] {
	from := min(Offset(query), max(len(all)-1, 0)/PageSize*PageSize)
	return window(all[from:min(from+PageSize, len(all))], from, len(all), query)
}

// Offset returns how many rows are before the page that a query names.
func Offset(query url.Values) int {
	number, err := strconv.Atoi(query.Get("page"))
	if err != nil || number < 1 || number > maxPage {
		return 0
	}
	return (number - 1) * PageSize
}

// maxPage keeps the number of a row small enough for any database.
const maxPage = 1_000_000

// Window returns the page that a query names, of a table that has so many rows in total: items are
// those after Offset.
func Window[T any](items []T, total int, query url.Values) Rows[T] {
	return window(items, Offset(query), total, query)
}

func window[T any](items []T, from, total int, query url.Values) Rows[T] {
	to, number := from+len(items), from/PageSize
	rows := Rows[T]{Items: items, From: min(from+1, to), To: to, Total: total}
	if len(items) == 0 {
		rows.From, rows.To, number = 0, 0, min(number, (total+PageSize-1)/PageSize)
	}
	if number > 0 {
		rows.Prev = withPage(query, number)
	}
	if to < total && len(items) > 0 {
		rows.Next = withPage(query, number+2)
	}
	return rows
}

func withPage(query url.Values, number int) string {
	q := url.Values{}
	maps.Copy(q, query)
	q.Set("page", strconv.Itoa(number))
	return "?" + q.Encode()
}
