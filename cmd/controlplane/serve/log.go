package serve

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

func newLog(level string) (zerolog.Logger, error) {
	l, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		return zerolog.Nop(), fmt.Errorf("--log-level: %q is none of debug, info, warn, error", level)
	}
	var out io.Writer = os.Stderr
	if isatty.IsTerminal(os.Stderr.Fd()) {
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(out).Level(l).With().Timestamp().Logger(), nil
}
