package main

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
)

// firstPaint is the time from the start of the navigation until the browser has painted something,
// in ms (https://www.w3.org/TR/paint-timing/).
const firstPaint = `performance.getEntriesByName("first-contentful-paint").map(e => e.startTime)[0] || 0`

// measurePaint loads the fleet's page in a real Chromium. The control plane's CA is not in its
// store, and its certificate is that of the requests before.
func (b *agentsBench) measurePaint(ctx context.Context, v *consoleVisitor) error {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return errors.New("chromium is not installed: `make bench-agents` installs it")
	}
	profile := b.sys.Dir + "/chromium"
	ctx, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(profile),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("ignore-certificate-errors", true))...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	made, err := v.code(ctx)
	if err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(made.Address+"#"+made.Code), chromedp.WaitVisible("#code")); err != nil {
		return err
	}
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(`//button[text()="Sign in"]`)); err != nil {
		return err
	}
	var painted []float64
	for range b.Looks {
		ms, err := paint(ctx, v.site+"/")
		if err != nil {
			return err
		}
		painted = append(painted, ms)
	}
	b.Add("console.paint", load.Median(painted))
	return nil
}

// paint loads a page and returns when the browser first painted it.
func paint(ctx context.Context, address string) (ms float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(address), chromedp.WaitVisible("table")); err != nil {
		return 0, err
	}
	for {
		if ms, err = chromedp.Run(ctx, chromedp.Evaluate[float64](firstPaint)); err != nil || ms > 0 {
			return ms, err
		}
		time.Sleep(askEvery)
	}
}
