package decode

import (
	"bytes"

	yamlnode "go.yaml.in/yaml/v3"
)

// WriteNodes writes documents as YAML.
func WriteNodes(roots []*Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yamlnode.NewEncoder(&out)
	for _, root := range roots {
		if err := encoder.Encode(root); err != nil {
			return nil, err
		}
	}
	err := encoder.Close()
	return out.Bytes(), err
}
