// Command vulncheck looks for known vulnerabilities in what the programs really
// call, with govulncheck. It needs the Go vulnerability database, which govulncheck
// cannot do without: where that is not reached it says that nothing was checked, and
// fails only if it was told to.
//
//	go run ./scripts/vulncheck [-required] [-db file:///COPY] [PACKAGES]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	database = "https://vuln.go.dev"
	timeout  = 15 * time.Second
)

type check struct {
	db       string
	required bool
	root     string // top folder of the repository
	module   string // folder of the packages' module
	packages []string
	out      io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := check{root: ".", out: os.Stdout}
	flag.StringVar(&c.db, "db", envOr("GOVULNDB", database), "vulnerability database, https:// or file://")
	flag.BoolVar(&c.required, "required", os.Getenv("VULN_REQUIRED") != "", "fail when the database is not reached")
	flag.StringVar(&c.module, "module", ".", "folder of the packages' module")
	flag.Parse()
	if c.packages = flag.Args(); len(c.packages) == 0 {
		c.packages = []string{"./..."}
	}
	err := c.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func (c check) run(ctx context.Context) error {
	if err := reached(ctx, c.db); err != nil {
		err = fmt.Errorf("NOT CHECKED for known vulnerabilities: the database %s is not reached: %w (fix: GOVULNDB=file:///COPY, see go.dev/doc/security/vuln/database)", c.db, err)
		if c.required {
			return err
		}
		fmt.Fprintln(c.out, err)
		return nil
	}
	args := append([]string{"tool", "-modfile=internal/tools/go.mod", "govulncheck", "-C", cmp.Or(c.module, "."), "-db", c.db}, c.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.root, c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("govulncheck: %w (fix: go get the fixed versions that it names)", err)
	}
	return nil
}

// reached asks the database for its index, as govulncheck will.
func reached(ctx context.Context, db string) error {
	if dir, local := strings.CutPrefix(db, "file://"); local {
		_, err := os.Stat(filepath.Join(filepath.FromSlash(dir), "index", "db.json"))
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, strings.TrimSuffix(db, "/")+"/index/db.json", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("it answers " + resp.Status)
	}
	return nil
}
