package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// change is what is tested: the files that differ from a commit that is known to be good.
type change struct {
	since string   // which commit that is, and why, in words
	files []string // that differ from it, those that are not committed included
	last  []string // of these, the newest: they decide which parts come first
}

// findChange returns what changed since base. Without base, the change is what this branch has more
// than origin/main. On origin/main itself nothing shows where the last change began: it may consist
// of many commits, or of days. All files count as changed there. The marks of parts that passed
// keep these from running again. If there is a limit, it is used for the files of the last commit.
func findChange(ctx context.Context, base string) (change, error) {
	if base != "" {
		return since(ctx, base, "as BASE says")
	}
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return change{}, err
	}
	if fork, err := git(ctx, "merge-base", "HEAD", "origin/main"); err == nil && fork != head {
		return since(ctx, fork, "where this branch left origin/main")
	}
	files, err := trackedFiles(ctx)
	c := change{since: "at any time: this is main, and nothing says where the last change began", files: files}
	if parent, err := git(ctx, "rev-parse", "--verify", "HEAD^1"); err == nil { // a shallow clone has none
		last, err := since(ctx, parent, "")
		if err != nil {
			return change{}, err
		}
		c.last = last.files
		c.since += "; the parts nearest to the last commit come first"
	}
	return c, err
}

// since returns the change since a commit.
func since(ctx context.Context, base, why string) (change, error) {
	commit, err := git(ctx, "rev-parse", "--verify", base+"^{commit}")
	if err != nil {
		return change{}, fmt.Errorf("%w: name the commit before the change with BASE=REF", err)
	}
	changed, err := git(ctx, "diff", "--name-only", commit)
	if err != nil {
		return change{}, err
	}
	untracked, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	files := strings.Fields(changed + "\n" + untracked)
	return change{since: fmt.Sprintf("since %.12s, %s", commit, why), files: files, last: files}, err
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
