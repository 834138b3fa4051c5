package harness

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// ExampleImage is the image in the documentation's examples.
const ExampleImage = "registry.example.com/shop/web:1.4.2"

// ExampleApp is the content of app.yaml.
const ExampleApp = `apiVersion: pipeops.io/v1alpha1
kind: App
metadata:
  name: web
spec:
  image: ` + ExampleImage + `
  ports: [{port: 8080}]
`

// ExampleManifests is the content of extras.yaml.
const ExampleManifests = `apiVersion: v1
kind: ConfigMap
metadata:
  name: extra-settings
data:
  mode: fast
---
apiVersion: v1
kind: Secret
metadata:
  name: extra-password
stringData:
  password: hunter2
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: extra
spec:
  selector: {matchLabels: {app: extra}}
  template:
    metadata: {labels: {app: extra}}
    spec:
      containers:
      - name: extra
        image: ` + ExampleImage + `
        envFrom: [{configMapRef: {name: extra-settings}}, {secretRef: {name: extra-password}}]
---
apiVersion: v1
kind: Service
metadata:
  name: extra
spec:
  selector: {app: extra}
  ports: [{port: 80, targetPort: 8080}]
`

// exampleTemplate makes the Service of the chart guide.
const exampleTemplate = `apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
  annotations: {greeting: {{ .Values.greeting | quote }}}
spec:
  ports: [{port: 80}]
`

// ExampleFiles writes the files that the examples of the documentation read.
func ExampleFiles(dir string) error {
	cert, key, err := selfsigned.PEM("shop.example.com")
	if err != nil {
		return err
	}
	errs := []error{os.MkdirAll(filepath.Join(dir, "guide", "templates"), 0o700)}
	for name, text := range map[string]string{
		"web.pem": cert, "web-key.pem": key, "token.txt": "ghp_example\n", "password.txt": "hunter2\n",
		"settings.yaml": "level: info\n", "logo.png": "\x89PNG\r\n\x1a\n", "app.yaml": ExampleApp, "extras.yaml": ExampleManifests,
		"compose.yaml":     "services:\n  web:\n    image: " + ExampleImage + "\n    ports: ['8080:8080']\n",
		"guide/Chart.yaml": "apiVersion: v2\nname: guide\nversion: 1.0.0\n", "guide/templates/guide.yaml": exampleTemplate, "values.yaml": "greeting: hello\n",
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}
