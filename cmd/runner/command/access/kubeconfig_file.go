package access

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
)

// maxKubeconfig bounds a file that is added to, in bytes.
const maxKubeconfig = 16 << 20

// kubeconfig is a file of kubectl's, of which only what is added is known here: client-go
// would make this program twice as large for it.
type kubeconfig map[string]any

// kubeEntry is a context with its cluster and its user, which all have one name.
type kubeEntry struct {
	name, namespace      string
	address, serverName  string
	ca                   string
	program, credentials string
}

// readKubeconfig reads a file; one that is not there is empty.
func readKubeconfig(path string) (kubeconfig, error) {
	text, err := boundedfile.Head(path, maxKubeconfig+1)
	if errors.Is(err, fs.ErrNotExist) {
		return kubeconfig{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseKubeconfig(path, text)
}

func parseKubeconfig(path string, text []byte) (kubeconfig, error) {
	if len(text) > maxKubeconfig {
		return nil, fmt.Errorf("%s is not a kubeconfig: it has more than %d bytes", path, maxKubeconfig)
	}
	config := kubeconfig{}
	if len(bytes.TrimSpace(text)) == 0 {
		return config, nil
	}
	if err := decode.LimitsFor(maxKubeconfig).LooseYAML(text, &config); err != nil {
		return nil, fmt.Errorf("%s is not a kubeconfig: %w", path, err)
	}
	if kind, there := config["kind"]; config == nil || len(config) > 0 && (!there || kind != "Config") {
		return nil, fmt.Errorf("%s is not a kubeconfig, and stays as it is: give another file", path)
	}
	return config, nil
}

// add puts an entry in the place of those of its name, and of what else is there nowhere.
func (k kubeconfig) add(e kubeEntry, use bool) error {
	k["apiVersion"], k["kind"] = "v1", "Config"
	for list, part := range map[string]map[string]any{
		"clusters": {"cluster": map[string]any{
			"server": "https://" + e.address, "tls-server-name": e.serverName,
			"certificate-authority-data": base64.StdEncoding.EncodeToString([]byte(e.ca)),
		}},
		"users": {"user": map[string]any{"exec": map[string]any{
			"apiVersion": execAPIVersion, "command": e.program, "args": []any{"kube-credential", "--credentials", e.credentials},
			"interactiveMode": "Never", "provideClusterInfo": false,
			"installHint": "pipeops-runner is not where it was: run pipeops-runner kubeconfig again",
		}}},
		"contexts": {"context": map[string]any{"cluster": e.name, "user": e.name, "namespace": e.namespace}},
	} {
		part["name"] = e.name
		if err := k.put(list, e.name, part); err != nil {
			return err
		}
	}
	if current, _ := k["current-context"].(string); current == "" || use {
		k["current-context"] = e.name
	}
	return nil
}

func (k kubeconfig) put(list, name string, part map[string]any) error {
	there, ok := k[list].([]any)
	if !ok && k[list] != nil {
		return fmt.Errorf("%s is not a list", list)
	}
	for i := range there {
		if known, ok := there[i].(map[string]any); ok && known["name"] == name {
			there[i] = part
			return nil
		}
	}
	k[list] = append(there, part)
	return nil
}

func (k kubeconfig) encode() ([]byte, error) { return decode.ToYAML(map[string]any(k)) }
