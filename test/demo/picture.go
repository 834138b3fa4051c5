package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"
)

// pictureFile names the environment variable with the file of README's picture: a terminal in which
// a deploy fails, says why, and succeeds. `make pictures` sets it.
const pictureFile = "DEMO_PICTURE"

// shownImage is what the picture calls the demo's image.
const shownImage = "shop/web:1.4.2"

// picture runs the commands and draws what they print.
func (d *demo) picture(ctx context.Context) (string, error) {
	file := os.Getenv(pictureFile)
	typo := d.image[:strings.LastIndex(d.image, ":")] + ":1.4.3"
	s := &screen{}
	deploy := func(image, words string) error {
		s.types("pipeops-runner deploy shop --image " + words + " --port 8080 --public")
		cmd := exec.CommandContext(ctx, d.sys.Binaries.Runner, "deploy", agentName, "shop", "-n", namespace, "--image", image,
			"--port", "8080", "--probe-path", "/healthz", "--public", "--wait=2m")
		cmd.Env = append(os.Environ(), "PIPEOPS_RUNNER_CREDENTIALS="+d.sys.RunnerCredentials(runner))
		out, err := cmd.CombinedOutput()
		s.prints(strings.NewReplacer(
			d.image, shownImage, typo, "shop/web:1.4.3",
			namespace+"/", "production/", "."+namespace+".", ".production.", namespace+" ", "production   ",
		).Replace(string(out)))
		return err
	}
	var failed *exec.ExitError
	if err := deploy(typo, "shop/web:1.4.3"); !errors.As(err, &failed) {
		return "", fmt.Errorf("an image that does not exist was deployed: %w", err)
	}
	if err := deploy(d.image, shownImage); err != nil {
		return "", fmt.Errorf("deploy the image that exists: %w\n%s", err, strings.Join(s.lines(), "\n"))
	}
	if _, err := d.runner(ctx, "delete", agentName, "shop", "-n", namespace); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, s.svg(), 0o644)
}

// screen is what a terminal shows, line after line.
type screen struct{ all []line }

type line struct {
	text  string
	class string
	after time.Duration // the line before it
}

// maxColumns is where a line is cut.
const maxColumns = 104

func (s *screen) types(command string) {
	s.all = append(s.all, line{"$ " + command, "command", time.Second})
}

func (s *screen) prints(text string) {
	for n, printed := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		l := line{printed, "", 150 * time.Millisecond}
		if n == 0 {
			l.after = 1500 * time.Millisecond
		}
		switch {
		case strings.HasPrefix(printed, "error:"):
			l.class = "error"
		case strings.Contains(printed, "fix:"), strings.Contains(printed, "public at"), strings.Contains(printed, "Healthy"):
			l.class = "good"
		}
		s.all = append(s.all, l)
	}
	s.all = append(s.all, line{after: 1500 * time.Millisecond})
}

func (s *screen) lines() (texts []string) {
	for _, l := range s.all {
		texts = append(texts, l.text)
	}
	return texts
}

const (
	lineHeight = 19
	svgHead    = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 %d" role="img" aria-label="%s" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">
<style>
  text { fill: #d7dce2; opacity: 0; animation: show .01s forwards; white-space: pre }
  .command { fill: #fff; font-weight: bold } .error { fill: #ff8b81 } .good { fill: #8fd69a }
  @keyframes show { to { opacity: 1 } }
  @media (prefers-reduced-motion: reduce) { text { animation-delay: 0s !important } }
</style>
<rect width="880" height="%d" rx="8" fill="#14181d"/>
`
)

// svg draws the screen: each line appears in its time, and stays.
func (s *screen) svg() []byte {
	height := lineHeight*len(s.all) + 24
	var b bytes.Buffer
	fmt.Fprintf(&b, svgHead, height, "A terminal: a deploy fails because its image does not exist, and says so; the next one is healthy and public", height)
	at := time.Duration(0)
	for n, l := range s.all {
		at += l.after
		if runes := []rune(l.text); len(runes) > maxColumns {
			l.text = string(runes[:maxColumns-1]) + "…"
		}
		if l.text != "" {
			fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\" class=\"%s\" style=\"animation-delay:%.2fs\">%s</text>\n", lineHeight*n+28, l.class, at.Seconds(), html.EscapeString(l.text))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
