// Package conformance runs the conformance tests of others: h2spec (HTTP/2, RFC 9113; HPACK, RFC
// 7541), and the interoperability tests of gRPC.
package conformance

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Case is a case of h2spec and its result.
type Case struct {
	// ID is the section and the number of the case in it, such as http2/6.5.3/2.
	ID, Title string
	Skipped   bool
	// Failure is empty if the server passed.
	Failure string
}

// suite is a part of h2spec's report, which is in JUnit's form.
type suite struct {
	Section string `xml:"package,attr"`
	Cases   []struct {
		Title   string    `xml:"classname,attr"`
		Skipped *struct{} `xml:"skipped"`
		Failure string    `xml:"failure"`
		Error   string    `xml:"error"`
	} `xml:"testcase"`
}

// HTTP2 runs all cases of h2spec, the strict ones too, over TLS. The server must serve the URL
// https://HOST:PORT/, and the host has to lead to this machine. The file for the report is made in
// a directory.
func HTTP2(ctx context.Context, host, port, dir string) ([]Case, error) {
	program, err := programs.H2spec.Build(ctx)
	if err != nil {
		return nil, err
	}
	report := filepath.Join(dir, "h2spec.xml")
	said, err := exec.CommandContext(ctx, program, "--strict", "--tls", "--insecure",
		"--host", host, "--port", port, "--timeout", "5", "--junit-report", report).CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) { // cases that failed are in the report
		return nil, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("h2spec against %s made no report: %w\n%s", net.JoinHostPort(host, port), err, said)
	}
	return parse(text)
}

func parse(report []byte) ([]Case, error) {
	var read struct {
		Suites []suite `xml:"testsuite"`
	}
	if err := xml.Unmarshal(report, &read); err != nil {
		return nil, fmt.Errorf("the report of h2spec: %w", err)
	}
	var cases []Case
	for _, s := range read.Suites {
		for i, c := range s.Cases {
			cases = append(cases, Case{
				ID: fmt.Sprintf("%s/%d", s.Section, i+1), Title: c.Title, Skipped: c.Skipped != nil,
				Failure: strings.TrimSpace(c.Failure + c.Error),
			})
		}
	}
	return cases, nil
}
