package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	pollInterval = time.Second // between looks for new containers, and between tries of Loki
	pushTimeout  = 10 * time.Second
	mostLines    = 500 // of one request
)

// endpoint is where the configuration of Alloy has its loki.write send lines.
var endpoint = regexp.MustCompile(`url\s*=\s*"([^"]+)"`)

// entry is a line of a container.
type entry struct {
	Labels map[string]string `json:"stream"`
	Values [1][2]string      `json:"values"` // nanoseconds, text
}

// shipper sends the logs of a node's containers to Loki.
type shipper struct {
	client kubernetes.Interface
	loki   string
	lines  chan entry

	work     sync.WaitGroup
	followed map[string]bool // by the container's ID
}

// alloy does what our configuration says, of which it reads Loki's address alone.
func alloy(ctx context.Context, client kubernetes.Interface) error {
	config, err := os.ReadFile("/etc/alloy/config.alloy")
	if err != nil {
		return err
	}
	url := endpoint.FindSubmatch(config)
	if url == nil {
		return errors.New("the configuration has no url of Loki")
	}
	s := &shipper{client: client, loki: string(url[1]), lines: make(chan entry), followed: map[string]bool{}}
	s.work.Go(func() { s.push(ctx) })
	s.work.Go(func() { s.find(ctx, os.Getenv("HOSTNAME")) })
	defer s.work.Wait()
	return serve(ctx, ":12345", map[string]http.HandlerFunc{"/-/ready": well, "/-/reload": well})
}

// find follows each container of the node.
func (s *shipper) find(ctx context.Context, node string) {
	for tick := time.NewTicker(pollInterval); ctx.Err() == nil; {
		pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			log.Print(err)
		} else {
			for i := range pods.Items {
				s.followNew(ctx, &pods.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (s *shipper) followNew(ctx context.Context, pod *corev1.Pod) {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil || s.followed[c.ContainerID] {
			continue
		}
		s.followed[c.ContainerID] = true
		s.work.Go(func() {
			if err := s.follow(ctx, pod, c.Name); err != nil {
				log.Printf("log of %s/%s: %v", pod.Namespace, pod.Name, err)
			}
		})
	}
}

func (s *shipper) follow(ctx context.Context, pod *corev1.Pod, container string) error {
	options := &corev1.PodLogOptions{Container: container, Follow: true, Timestamps: true}
	stream, err := s.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	labels := map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "container": container}
	if app := pod.Labels["pipeops.io/app"]; app != "" {
		labels["app"] = app
	}
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		stamp, text, _ := strings.Cut(lines.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			return err
		}
		select {
		case s.lines <- entry{labels, [1][2]string{{strconv.FormatInt(at.UnixNano(), 10), text}}}:
		case <-ctx.Done():
			return nil
		}
	}
	return lines.Err()
}

// push sends lines in batches. It retries each batch until Loki accepts it.
func (s *shipper) push(ctx context.Context) {
	for {
		var all []entry
		select {
		case e := <-s.lines:
			all = append(all, e)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(all) < mostLines; {
			select {
			case e := <-s.lines:
				all = append(all, e)
			default:
				more = false
			}
		}
		for err := s.send(ctx, all); err != nil && ctx.Err() == nil; err = s.send(ctx, all) {
			log.Print(err)
			select {
			case <-ctx.Done():
			case <-time.After(pollInterval):
			}
		}
	}
}

// send posts lines: https://grafana.com/docs/loki/latest/reference/loki-http-api/
func (s *shipper) send(ctx context.Context, all []entry) error {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"streams": all})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.loki, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusBadRequest: // it never takes these: lines that are too old
		log.Printf("Loki refuses lines: %s", text)
		return nil
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("answer of Loki: %s: %s", resp.Status, text)
	}
	return nil
}
