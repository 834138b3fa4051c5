package sources

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// FlagOf maps the fields of a source to the flags of source set that set them.
var FlagOf = map[string]string{ //nolint:gosec // names of flags
	"name": "NAME", "url": "--url", "type": "--type", "path": "--path", "interval": "--interval", "credentials": "--secret", "prune": "--prune",
	"forceConflicts": "--force-conflicts", "decryptionKeys": "--decrypt",
	"ref": "--branch, --tag, --semver, --commit", "ref.branch": "--branch", "ref.tag": "--tag", "ref.semver": "--semver", "ref.commit": "--commit",
	"promote": "--promote-from", "promote.from": "--promote-from", "promote.after": "--after", "promote.approval": "--approval",
	"app": "--app", "appSpec": "--app-file",
	"chart": "--release, --values, --values-file", "chart.values": "--values", "chart.valuesFiles": "--values-file",
	"build": "--image", "build.image": "--image", "build.namespace": "--build-namespace", "build.gitCredentials": "--git-credentials",
	"build.context": "--context", "build.dockerfile": "--dockerfile", "build.target": "--target",
	"build.pushCredentials": "--push-credentials", "build.pullCredentials": "--pull-credentials",
	"build.ca": "--ca-config-map, --ca-secret", "build.ca.configMap": "--ca-config-map", "build.ca.secret": "--ca-secret",
	"build.resources.requests.cpu": "--cpu", "build.resources.requests.memory": "--memory",
	"report": "--report", "report.forge": "--report", "report.credentials": "--report-credentials", "report.api": "--report-api",
	"report.environment": "--environment", "report.environmentUrl": "--environment-url",
	"previews": "--previews", "previews.path": "--preview-path", "previews.valuesFiles": "--preview-values-file", "previews.label": "--preview-label",
	"previews.limit": "--preview-limit", "previews.expireAfter": "--preview-expire-after", "previews.secrets": "--preview-secret",
	"previews.quota": "--preview-quota", "previews.comment": "--preview-comment",
	"previews.open": "--preview-open", "previews.visitors.signIn.emails": "--preview-email", "previews.visitors.signIn.groups": "--preview-group",
	"build.resources.limits.cpu": "--limit-cpu", "build.resources.limits.memory": "--limit-memory",
}

// inFlags replaces field names in a fix by the command line's flags.
var inFlags = strings.NewReplacer("appSpec", "--app-file", "set build", "give --image", "instead of ref", "instead of --branch, --tag, --semver or --commit", "goes into ref", "goes into --branch, --tag, --semver or --commit",
	"name it in credentials", "name it with --secret", "that credentials names", "that --secret names")

// sourceMistakes returns what is wrong with a source, in terms of source set; nil if nothing is.
func sourceMistakes(bad []runnerapi.FieldError) error {
	all := make([]error, 0, len(bad))
	for _, b := range bad {
		field, _, _ := strings.Cut(b.Field, "[")
		flag, known := FlagOf[field]
		switch name, isArg := strings.CutPrefix(b.Field, "build.args."); {
		case isArg:
			flag = "--arg " + name
		case strings.HasPrefix(b.Field, "previews.quota."):
			flag = FlagOf["previews.quota"]
		case !known:
			flag = b.Field
		}
		all = append(all, fmt.Errorf("%s: %s", flag, inFlags.Replace(b.Message)))
	}
	return errors.Join(all...)
}
