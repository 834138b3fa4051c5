package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/updatewindow"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// What a new version may be given to register: shorter, and a slow machine would
// undo every update; longer, and a broken one would be kept for too long.
const (
	minUpdateDeadline = 10 * time.Second
	maxUpdateDeadline = time.Hour
)

// Windows returns when the agent may update itself.
func (c Config) Windows() (updatewindow.Windows, error) { return updatewindow.Parse(c.UpdateWindow) }

// ReleaseTrust returns the signatures that a release needs: as many as the cluster owner asks for,
// of the cluster owner's keys, or otherwise of those that the program was built with.
func (c Config) ReleaseTrust(builtWith string) (release.Trust, error) {
	text := cmp.Or(strings.Join(c.UpdateKeys, ","), builtWith)
	keys, err := release.ParseKeys(text)
	switch {
	case err != nil:
		return release.Trust{}, fmt.Errorf("PIPEOPS_UPDATE_KEYS: %w", err)
	case len(keys) == 0:
		return release.Trust{}, errors.New("PIPEOPS_UPDATE_KEYS: is not set, and this build knows no key, so no release could be trusted (fix: set it, or PIPEOPS_SELF_UPDATE=false)")
	case c.UpdateSignatures > len(keys):
		return release.Trust{}, tooFewKeys(c.UpdateSignatures, len(keys))
	}
	return release.Trust{Keys: keys, Signatures: c.UpdateSignatures}, nil
}

func tooFewKeys(signatures, keys int) error {
	return fmt.Errorf("PIPEOPS_UPDATE_SIGNATURES: %d signatures are more than the %d trusted keys can make, so no release could be trusted (fix: name more keys in PIPEOPS_UPDATE_KEYS, or ask for fewer signatures)", signatures, keys)
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
	keys, err := release.ParseKeys(strings.Join(c.UpdateKeys, ","))
	switch {
	case err != nil:
		wrong("PIPEOPS_UPDATE_KEYS", "give the second line of minisign's .pub file", "%v", err)
	case c.UpdateSignatures < 1:
		wrong("PIPEOPS_UPDATE_SIGNATURES", "use 1, or as many as there are people who sign", "%d is not a number of signatures", c.UpdateSignatures)
	case len(keys) > 0 && c.UpdateSignatures > len(keys): // the keys of the build are not known here
		errs = append(errs, tooFewKeys(c.UpdateSignatures, len(keys)))
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
