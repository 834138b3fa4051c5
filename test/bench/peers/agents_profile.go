package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
)

const (
	// profileAddress is where the control plane is asked for its profiles.
	profileAddress = loopback + ":6061"
	// stormProfile is how many seconds of a storm are profiled.
	stormProfile = 10
)

// profileArgs returns the control plane's, when its profiles are wanted.
func (b *agentsBench) profileArgs() []string {
	if b.profile == "" {
		return nil
	}
	return []string{"--pprof-listen", profileAddress}
}

// profileStorm profiles the CPU from now on; the returned function waits for the end of the
// profile.
func (b *agentsBench) profileStorm(ctx context.Context) (wait func() error) {
	ended := make(chan error, 2)
	go func() { ended <- b.fetchProfile(ctx, fmt.Sprintf("profile?seconds=%d", stormProfile), "storm-cpu") }()
	go func() { ended <- b.profileCrowdsCPU(ctx) }()
	return func() error { return errors.Join(<-ended, <-ended) }
}

func (b *agentsBench) profileCrowdsCPU(ctx context.Context) error {
	if b.profile == "" {
		return nil
	}
	if err := os.MkdirAll(b.profile, 0o750); err != nil {
		return err
	}
	return b.all(ctx, func(i int) error {
		return b.crowds[i].Call("Crowd.ProfileCPU", crowd.CPUProfile{
			Path: filepath.Join(b.profile, fmt.Sprintf("crowd-%d-storm-cpu", i)), For: stormProfile * time.Second,
		}, new(crowd.None))
	})
}

// profileMemory profiles what memory holds after a collection, and what waits.
func (b *agentsBench) profileMemory(ctx context.Context) error {
	return errors.Join(
		b.profileCrowds(ctx),
		b.fetchProfile(ctx, "goroutine", "idle-goroutines"),
		b.fetchProfile(ctx, "heap", "idle-heap-as-it-was"),
		b.fetchProfile(ctx, "heap?gc=1&debug=1", "idle-heap-and-statistics"),
		b.fetchProfile(ctx, "heap", "idle-heap"),
	)
}

func (b *agentsBench) profileCrowds(ctx context.Context) error {
	if b.profile == "" {
		return nil
	}
	return b.all(ctx, func(i int) error {
		return b.crowds[i].Call("Crowd.Profile", filepath.Join(b.profile, fmt.Sprintf("crowd-%d-heap", i)), new(crowd.None))
	})
}

func (b *agentsBench) fetchProfile(ctx context.Context, what, name string) (err error) {
	if b.profile == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, (stormProfile+20)*time.Second)
	defer cancel()
	url := "http://" + net.JoinHostPort(loopback, "6061") + "/debug/pprof/" + what
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: %s", what, resp.Status)
	}
	if err := os.MkdirAll(b.profile, 0o750); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(b.profile, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}
