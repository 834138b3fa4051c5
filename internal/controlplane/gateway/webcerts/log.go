package webcerts

import (
	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLog returns a logger for certmagic that writes to ours.
func newLog(log zerolog.Logger) *zap.Logger { return zap.New(&logCore{log: log}) }

// logCore implements zapcore.Core.
type logCore struct {
	log    zerolog.Logger
	fields []zapcore.Field
}

// levels are zap's levels in zerolog. What certmagic calls information is for developers.
var levels = map[zapcore.Level]zerolog.Level{
	zapcore.DebugLevel: zerolog.TraceLevel, zapcore.InfoLevel: zerolog.DebugLevel, zapcore.WarnLevel: zerolog.WarnLevel,
}

func levelOf(l zapcore.Level) zerolog.Level {
	if level, ok := levels[l]; ok {
		return level
	}
	return zerolog.ErrorLevel
}

// Enabled implements zapcore.Core.
func (c *logCore) Enabled(l zapcore.Level) bool { return levelOf(l) >= c.log.GetLevel() }

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.log, append(append([]zapcore.Field{}, c.fields...), fields...)}
}

// Check implements zapcore.Core.
func (c *logCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range append(append([]zapcore.Field{}, c.fields...), fields...) {
		f.AddTo(values)
	}
	c.log.WithLevel(levelOf(e.Level)).Fields(values.Fields).Msg("certificates: " + e.Message)
	return nil
}

// Sync implements zapcore.Core.
func (*logCore) Sync() error { return nil }
