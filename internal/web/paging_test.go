package web

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPaging(t *testing.T) {
	all := make([]int, 2*PageSize+1)
	for i := range all {
		all[i] = i
	}
	for page, want := range map[string]struct {
		from, to   int
		prev, next string
	}{
		"": {1, 50, "", "?find=a&page=2"}, "2": {51, 100, "?find=a&page=1", "?find=a&page=3"}, "3": {101, 101, "?find=a&page=2", ""},
		"99": {101, 101, "?find=a&page=2", ""}, "-1": {1, 50, "", "?find=a&page=2"}, "x": {1, 50, "", "?find=a&page=2"},
	} {
		rows := Paged(all, url.Values{"page": {page}, "find": {"a"}})
		assert.Equal(t, want.from, rows.From, page)
		assert.Equal(t, want.to, rows.To, page)
		assert.Equal(t, want.prev, rows.Prev, page)
		assert.Equal(t, want.next, rows.Next, page)
		assert.Equal(t, want.from-1, rows.Items[0], page)
	}
	none := Paged([]int{}, nil)
	assert.Empty(t, none.Items)
	assert.Zero(t, none.From)
	assert.Empty(t, none.Prev+none.Next)
}
