package components

import (
	"context"
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Alertmanager sends alerts to the agent with a token. It is in a Secret of this name beside each
// of the two, which their pods mount.
const (
	alertsSecret = "pipeops-alerts" //nolint:gosec // the Secret's name
	alertsKey    = "token"
	// ofAlerts is the component that needs the token.
	ofAlerts = "prometheus"
)

// ensureAlertsToken makes the Secrets with the token that Alertmanager and the agent share. The
// agent's decides: an owner may have set it. With its Secret the agent opens its port of metrics.
func (i *Installer) ensureAlertsToken(ctx context.Context, agentNamespace string) error {
	token, err := i.alertsToken(ctx, agentNamespace)
	if err != nil {
		return err
	}
	if len(token) == 0 {
		if token, err = i.alertsToken(ctx, namespaceMonitoring); err != nil {
			return err
		}
	}
	if len(token) == 0 {
		token = []byte(rand.Text())
	}
	for _, namespace := range []string{agentNamespace, namespaceMonitoring} {
		if err := i.putAlertsToken(ctx, namespace, token); err != nil {
			return err
		}
	}
	return nil
}

// alertsToken returns the token in a namespace; nil for none.
func (i *Installer) alertsToken(ctx context.Context, namespace string) ([]byte, error) {
	s, err := i.Client.CoreV1().Secrets(namespace).Get(ctx, alertsSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s.Data[alertsKey], translated(err, "reading Secret "+namespace+"/"+alertsSecret)
}

func (i *Installer) putAlertsToken(ctx context.Context, namespace string, token []byte) error {
	secrets, data := i.Client.CoreV1().Secrets(namespace), map[string][]byte{alertsKey: token}
	s, err := secrets.Get(ctx, alertsSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		ours := metav1.ObjectMeta{Name: alertsSecret, Labels: map[string]string{labelComponent: ofAlerts}}
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: ours, Data: data}, metav1.CreateOptions{})
	case err == nil && string(s.Data[alertsKey]) != string(token):
		s.Data = data
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	return translated(err, "writing Secret "+namespace+"/"+alertsSecret)
}

// removeAlertsToken deletes the Secrets that ensureAlertsToken made, and none of an owner. The
// agent closes its port of metrics then.
func (i *Installer) removeAlertsToken(ctx context.Context, agentNamespace string) error {
	for _, namespace := range []string{agentNamespace, namespaceMonitoring} {
		secrets := i.Client.CoreV1().Secrets(namespace)
		s, err := secrets.Get(ctx, alertsSecret, metav1.GetOptions{})
		if err == nil && s.Labels[labelComponent] == ofAlerts {
			err = secrets.Delete(ctx, alertsSecret, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return translated(err, "deleting Secret "+namespace+"/"+alertsSecret)
		}
	}
	return nil
}
