package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// memoryInterval is how often the kubelet is asked, which looks at containers every ten seconds.
const memoryInterval = 10 * time.Second

// awaitScraped waits until Prometheus has scraped all targets that it found, among them all Apps,
// and Loki takes lines.
func (b *monitored) awaitScraped(ctx context.Context) (err error) {
	if b.prometheus, err = b.address(ctx, "prometheus-server"); err != nil {
		return err
	}
	if b.loki, err = b.address(ctx, "loki"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, scrapedTimeout)
	defer cancel()
	return harness.Eventually(ctx, "Prometheus scrapes all, and Loki takes lines", func(ctx context.Context) error {
		if apps, err := b.query(ctx, `count(up{job="pods", namespace="`+name+`"} == 1)`); err != nil || int(apps) < b.Apps {
			return fmt.Errorf("of %d Apps, %.0f are scraped: %w", b.Apps, apps, err)
		}
		if down, err := b.query(ctx, `count(up == 0) or vector(0)`); err != nil || down > 0 {
			return fmt.Errorf("%.0f targets cannot be scraped: %w", down, err)
		}
		return b.push(ctx)
	})
}

// address returns the address of a Service of the namespace monitoring.
func (b *monitored) address(ctx context.Context, service string) (string, error) {
	s, err := b.kube.CoreV1().Services(monitoringNamespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return "http://" + net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(s.Spec.Ports[0].Port))), nil
}

// query returns the only value of an instant query.
func (b *monitored) query(ctx context.Context, query string) (float64, error) {
	body, err := call(ctx, http.MethodGet, b.prometheus+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, err
	}
	if len(answer.Data.Result) != 1 {
		return 0, fmt.Errorf("%s has %d values", query, len(answer.Data.Result))
	}
	return strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
}

// push sends a second's lines to Loki, with the labels that our configuration of Alloy sets. The
// benchmark sends them itself, because Alloy is not available as a Go module.
func (b *monitored) push(ctx context.Context) error {
	var streams []any
	for i := range b.Lines {
		app := watched(i % b.Apps)
		line := strings.Repeat("a line that an App logs. ", 8)
		streams = append(streams, map[string]any{
			"stream": map[string]string{"namespace": name, "app": app, "container": app, "pod": app + "-0"},
			"values": [][]string{{strconv.FormatInt(time.Now().UnixNano(), 10), line}},
		})
	}
	body, err := json.Marshal(map[string]any{"streams": streams})
	if err != nil {
		return err
	}
	_, err = call(ctx, http.MethodPost, b.loki+"/loki/api/v1/push", body)
	return err
}

func call(ctx context.Context, method, at string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", at, resp.Status, text)
	}
	return text, err
}

// measure logs and looks until the time is over. The figures of single parts are those of the
// moment at which all together needed most.
func (b *monitored) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.Seconds*float64(time.Second)))
	defer cancel()
	second, look := time.NewTicker(time.Second), time.NewTicker(memoryInterval)
	defer second.Stop()
	defer look.Stop()
	most := map[string]int64{}
	for {
		select {
		case <-second.C:
			if err := b.push(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-look.C:
			now, err := b.memory(ctx)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if now["total"] > most["total"] {
				most = now
			}
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return b.add(context.WithoutCancel(ctx), most)
			}
			return ctx.Err()
		}
	}
}

// figureOf returns the figure of a container.
func figureOf(namespace, container string) string {
	switch {
	case namespace == "pipeops":
		return "agent"
	case namespace != monitoringNamespace:
		return ""
	case strings.Contains(container, "reload"):
		return "reload"
	}
	for _, id := range []string{"prometheus-server", "loki", "alertmanager", "kube-state-metrics", "node-exporter"} {
		if strings.Contains(container, id) {
			return id
		}
	}
	return "total" // of all alone
}

// memory returns what containers have now, by figure: the working set, which is what a limit counts
// (https://kubernetes.io/docs/reference/instrumentation/node-metrics/).
func (b *monitored) memory(ctx context.Context) (map[string]int64, error) {
	nodes, err := b.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, node := range nodes.Items {
		text, err := b.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		if err := addSummary(all, text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func addSummary(all map[string]int64, text []byte) error {
	var summary struct {
		Pods []struct {
			PodRef     struct{ Namespace string }
			Containers []struct {
				Name   string
				Memory struct{ WorkingSetBytes int64 }
			}
		}
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return err
	}
	for _, pod := range summary.Pods {
		for _, c := range pod.Containers {
			id := figureOf(pod.PodRef.Namespace, c.Name)
			if id == "" {
				continue
			}
			if id != "total" {
				all[id] += c.Memory.WorkingSetBytes
			}
			all["total"] += c.Memory.WorkingSetBytes
		}
	}
	return nil
}

func (b *monitored) add(ctx context.Context, most map[string]int64) error {
	for id, n := range most {
		b.set.Add(id, mebibytes(n))
	}
	series, err := b.query(ctx, "prometheus_tsdb_head_series")
	if err != nil {
		return err
	}
	b.set.Add("series", series)
	restarts, err := b.restarts(ctx)
	b.set.Add("restarts", float64(restarts))
	return err
}

// restarts returns how often containers of monitoring restarted after they had run.
func (b *monitored) restarts(ctx context.Context) (n int32, err error) {
	pods, err := b.kube.CoreV1().Pods(monitoringNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n, nil
}
