package helm

import (
	"context"
	"log/slog"

	"github.com/rs/zerolog"
)

type logger = zerolog.Logger

// handler takes Helm's log.
type handler struct{ log zerolog.Logger }

// Enabled implements slog.Handler.
func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler. Attributes are left out, and so is any text that Helm
// formats itself.
func (h handler) Handle(_ context.Context, r slog.Record) error {
	h.log.Debug().Str("level", r.Level.String()).Msg("helm: the SDK reported an error; see the release's description")
	return nil
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h handler) WithGroup(string) slog.Handler { return h }
