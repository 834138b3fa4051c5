package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/window"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// What a new version may be given to register: shorter, and a slow machine would
// undo every update; longer, and a broken one would be kept for too long.
const (
	minUpdateDeadline = 10 * time.Second
	maxUpdateDeadline = time.Hour
)

// Windows returns when the agent may update itself.
func (c Config) Windows() (window.Windows, error) { return window.Parse(c.UpdateWindow) }

// ReleaseKeys returns the keys that the cluster owner trusts, or otherwise those that the program
// was built with.
func (c Config) ReleaseKeys(builtWith string) ([]release.PublicKey, error) {
	text := strings.Join(c.UpdateKeys, ",")
	if text == "" {
		text = builtWith
	}
	return release.ParseKeys(text)
}

// UpdateKeysNeeded is like ReleaseKeys of an agent that is to update itself: there has to be one.
func (c Config) UpdateKeysNeeded(builtWith string) ([]release.PublicKey, error) {
	keys, err := c.ReleaseKeys(builtWith)
	if err == nil && len(keys) == 0 {
		err = errors.New("PIPEOPS_UPDATE_KEYS: is not set, and this build knows no key, so no release could be trusted (fix: set it, or PIPEOPS_SELF_UPDATE=false)")
	}
	return keys, err
}

// checkUpdate finds what is wrong with the settings of the agent's update of
// itself, whether or not that is turned on.
func (c *Config) checkUpdate() (errs []error) {
	wrong := func(env, fix, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s (fix: %s)", env, fmt.Sprintf(format, args...), fix))
	}
	if _, err := c.Windows(); err != nil {
		wrong("PIPEOPS_UPDATE_WINDOW", "write it as [DAYS] HH:MM-HH:MM [ZONE], e.g. Sat,Sun 02:00-04:00 Europe/Berlin", "%v", err)
	}
	if _, err := c.ReleaseKeys(""); err != nil {
		wrong("PIPEOPS_UPDATE_KEYS", "give the second line of minisign's .pub file", "%v", err)
	}
	if c.UpdateMirror != "" {
		u, err := url.Parse(c.UpdateMirror)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			wrong("PIPEOPS_UPDATE_MIRROR", "write it as https://HOST/PATH", "is not an https URL without user, query and fragment")
		}
	}
	if c.UpdateDeadline < minUpdateDeadline || c.UpdateDeadline > maxUpdateDeadline {
		wrong("PIPEOPS_UPDATE_DEADLINE", "use 5m", "%s is not between %s and %s", c.UpdateDeadline, minUpdateDeadline, maxUpdateDeadline)
	}
	return errs
}
