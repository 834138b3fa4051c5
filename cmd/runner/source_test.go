package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSourceCommands(t *testing.T) {
	w := newWorld(t)
	put := []string{"source", "put", "shop", "web", "--type", "app", "--path", "web/app.yaml"}
	with := func(args ...string) []string { return append(append([]string{}, put...), args...) }
	code, out, errs := w.run(t, with("--url", "https://git.example.com/shop/deploy.git", "--wait")...)
	assert.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "c0ffee12c0ff")
	code, _, errs = w.run(t, with("--url", "https://git.example.com/missing.git", "--wait=5s")...)
	assert.Equal(t, exitAppFailed, code)
	assert.Contains(t, errs, "there is no repository")
	for _, bad := range [][]string{
		with("--url", "http://git.example.com/a.git"), with("--url", "https://git.example.com/a.git", "--interval", "1s"),
		with("--url", "https://git.example.com/a.git", "--branch", "a", "--tag", "b"), with("--url", "https://git.example.com/a.git", "--path", "../x"),
	} {
		code, _, _ := w.run(t, bad...)
		assert.Equal(t, exitUsage, code, bad)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitOK, "web/app.yaml", []string{"list", "shop"}},
		{exitOK, "repository_not_found", []string{"get", "shop", "web"}},
		{exitOK, "missing.git", []string{"sync", "shop", "web"}},
		{exitOK, "", []string{"delete", "shop", "web"}},
		{exitNotFound, "", []string{"get", "shop", "web"}},
	} {
		code, out, errs := w.run(t, append([]string{"source"}, c.args...)...)
		assert.Equal(t, c.code, code, errs)
		assert.Contains(t, out, c.says)
	}
}
