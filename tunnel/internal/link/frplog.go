package link

import (
	"strings"
	"sync"
	"time"

	frplog "github.com/fatedier/frp/pkg/util/log"
	golog "github.com/fatedier/golib/log"
	"github.com/rs/zerolog"
)

var redirectOnce sync.Once

// RedirectFRPLog sends frp's log to ours. frp's logger is one global for the whole process, so the
// first caller's logger takes it, before any frp instance exists.
func RedirectFRPLog(lg zerolog.Logger) {
	redirectOnce.Do(func() {
		level := golog.ErrorLevel
		if lg.GetLevel() <= zerolog.DebugLevel && zerolog.GlobalLevel() <= zerolog.DebugLevel {
			level = golog.InfoLevel
		}
		frplog.Logger = golog.New(
			golog.WithOutput(frpWriter{lg.With().Str("library", "frp").Logger()}),
			golog.WithLevel(level),
		)
	})
}

// frpWriter lowers frp's levels: its warnings are about single connections, and what
// matters of them is reported by this module with more context.
type frpWriter struct{ log zerolog.Logger }

var _ golog.Writer = frpWriter{}

func (w frpWriter) Write(p []byte) (int, error) { return w.WriteLog(p, golog.InfoLevel, time.Time{}) }

// WriteLog drops frp's own time and level, which zerolog adds in its way.
func (w frpWriter) WriteLog(p []byte, level golog.Level, _ time.Time) (int, error) {
	line := strings.TrimSpace(string(p))
	if _, rest, found := strings.Cut(line, "] "); found {
		line = rest
	}
	event := w.log.Debug()
	if level == golog.ErrorLevel {
		event = w.log.Warn()
	}
	event.Msg(line)
	return len(p), nil
}
