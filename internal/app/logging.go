package app

import (
	"sync"

	"github.com/go-logr/zerologr"
	"github.com/rs/zerolog"
	"k8s.io/klog/v2"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
)

var logOnce sync.Once

// adoptLoggers sends what controller-runtime and client-go write to their
// package-global loggers to ours; they are the process', so once.
func adoptLoggers(log zerolog.Logger) {
	logOnce.Do(func() {
		quiet := log.Level(max(log.GetLevel(), zerolog.InfoLevel))
		zerologr.VerbosityFieldName = ""
		l := zerologr.New(&quiet)
		crlog.SetLogger(l)
		klog.SetLogger(l.WithName("client-go"))
	})
}
