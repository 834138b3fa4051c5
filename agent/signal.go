package agent

// signal requests that something is done soon: once, however often it is raised until then.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default: // it is raised already
	}
}
