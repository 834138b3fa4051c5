package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// pageSize is how many objects of a list the client asks for at a time.
const pageSize = 500

// pages returns a whole list, which it reads part by part.
func pages[L, T any](ctx context.Context, c *core, r *request, of func(L) ([]T, runnerapi.Page)) ([]T, error) {
	if r.query == nil {
		r.query = map[string]string{}
	}
	r.query["limit"] = strconv.Itoa(pageSize)
	all := []T{}
	for {
		list, err := fetch[L](ctx, c, r)
		if err != nil {
			return nil, err
		}
		items, page := of(list)
		if all = append(all, items...); page.Continue == "" || len(items) == 0 {
			return all, nil
		}
		r.query["continue"] = page.Continue
	}
}
