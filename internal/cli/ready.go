package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	readyTimeout   = 5 * time.Second // for one answer
	readyInterval  = time.Second     // between two questions
	maxReadyAnswer = 64 << 10
)

// AwaitReady asks a program whether it is ready, until read returns no error or the time is over.
// The error is then about the last answer.
func AwaitReady(program string, question *http.Request, wait time.Duration, secure *tls.Config, read func(*http.Response) error) error {
	client := &http.Client{Timeout: readyTimeout, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}} // and no proxy
	asking, cancel := context.WithTimeout(question.Context(), wait)
	defer cancel()
	for {
		err := askReady(program, client, question, read)
		if err == nil || !retry.Wait(asking, readyInterval) {
			return err
		}
	}
}

func askReady(program string, client *http.Client, question *http.Request, read func(*http.Response) error) error {
	resp, err := client.Do(question) //nolint:gosec // the caller's own program, at the address of its flag
	if err != nil {
		return fmt.Errorf("%s does not answer: %w (fix: see whether it runs and listens at that address, and its log)", program, err)
	}
	defer func() { _ = resp.Body.Close() }()
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxReadyAnswer)
	return read(resp)
}
