package dnstest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// Clouds is a fake of the APIs of DNS providers, which cannot be had in a test: Cloudflare's,
// DigitalOcean's, Hetzner's and Route 53's, as far as they change TXT records. The records are a
// Server's. A request needs the token; Route 53's has it as its access key.
type Clouds struct {
	Server *Server
	// Zone is the one zone of the account.
	Zone, Token string
}

// Handler returns the APIs, which a request chooses by its path.
func (c Clouds) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /client/v4/zones", c.cloudflareZones)
	mux.HandleFunc("GET /client/v4/zones/{zone}/dns_records", c.cloudflareRecords)
	mux.HandleFunc("POST /client/v4/zones/{zone}/dns_records", c.cloudflareAdd)
	mux.HandleFunc("DELETE /client/v4/zones/{zone}/dns_records/{record}", c.cloudflareDelete)
	mux.HandleFunc("POST /v2/domains/{zone}/records", c.digitalOceanAdd)
	mux.HandleFunc("DELETE /v2/domains/{zone}/records/{record}", c.digitalOceanDelete)
	mux.HandleFunc("POST /v1/zones/{zone}/rrsets/{name}/TXT/actions/{action}", c.hetzner)
	mux.HandleFunc("GET /2013-04-01/hostedzonesbyname", c.route53Zones)
	mux.HandleFunc("GET /2013-04-01/hostedzone/{zone}/rrset", c.route53Records)
	mux.HandleFunc("POST /2013-04-01/hostedzone/{zone}/rrset", c.route53Change)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Get("Authorization"); given != "Bearer "+c.Token && !strings.Contains(given, "Credential="+c.Token+"/") {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"errors":[{"message":"not authorized"}]}`))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// TXT returns the texts of a name, in the order in which they were added.
func (s *Server) TXT(name string) (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rr := range s.records[dns.Fqdn(name)] {
		if txt, ok := rr.(*dns.TXT); ok {
			texts = append(texts, strings.Join(txt.Txt, ""))
		}
	}
	return texts
}

// setTXT replaces the texts of a name.
func (s *Server) setTXT(name string, texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name = dns.Fqdn(name)
	if s.records[name] = nil; len(texts) == 0 {
		delete(s.records, name)
	}
	for _, text := range texts {
		header := dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}
		s.records[name] = append(s.records[name], &dns.TXT{Hdr: header, Txt: []string{text}})
		s.updates++
	}
}

func (c Clouds) add(name, text string) { c.Server.setTXT(name, append(c.Server.TXT(name), text)) }

func (c Clouds) drop(name, text string) {
	c.Server.setTXT(name, slices.DeleteFunc(c.Server.TXT(name), func(had string) bool { return had == text }))
}

// absolute returns a name in the zone in full, as Cloudflare takes both.
func (c Clouds) absolute(name string) string {
	if name = strings.TrimSuffix(name, "."); strings.HasSuffix(name, c.Zone) {
		return name
	}
	return name + "." + c.Zone
}

func unquoted(text string) string { return strings.Trim(text, `"`) }

func answerJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

type object = map[string]any

// cloudflareRecord is a record of Cloudflare. Its ID is its name and its text.
type cloudflareRecord struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Content string `json:"content"`
	TTL     int    `json:"ttl"`
}

func (c Clouds) cloudflareZones(w http.ResponseWriter, r *http.Request) {
	zones := []object{}
	if strings.TrimSuffix(r.URL.Query().Get("name"), ".") == c.Zone {
		zones = append(zones, object{"id": "zone", "name": c.Zone})
	}
	answerJSON(w, http.StatusOK, object{"success": true, "result": zones})
}

func (c Clouds) cloudflareRecords(w http.ResponseWriter, r *http.Request) {
	name, records := c.absolute(r.URL.Query().Get("name")), []cloudflareRecord{}
	for _, text := range c.Server.TXT(name) {
		if strings.Contains(text, r.URL.Query().Get("content.contains")) {
			records = append(records, cloudflareRecord{name + " " + text, "TXT", name, strconv.Quote(text), 120})
		}
	}
	answerJSON(w, http.StatusOK, object{"success": true, "result": records})
}

func (c Clouds) cloudflareAdd(w http.ResponseWriter, r *http.Request) {
	var record cloudflareRecord
	if err := json.NewDecoder(r.Body).Decode(&record); err != nil || record.TTL < 60 {
		answerJSON(w, http.StatusBadRequest, object{"errors": []object{{"message": "bad record"}}})
		return
	}
	c.add(c.absolute(record.Name), unquoted(record.Content))
	answerJSON(w, http.StatusOK, object{"success": true, "result": record})
}

func (c Clouds) cloudflareDelete(w http.ResponseWriter, r *http.Request) {
	name, text, _ := strings.Cut(r.PathValue("record"), " ")
	c.drop(name, text)
	answerJSON(w, http.StatusOK, object{"success": true, "result": cloudflareRecord{Type: "TXT", Name: name, Content: strconv.Quote(text)}})
}

// digitalOceanAdd gives a record the number that it has among those of the name _acme-challenge.
func (c Clouds) digitalOceanAdd(w http.ResponseWriter, r *http.Request) {
	var record struct {
		Name, Data string
		TTL        int
	}
	if err := json.NewDecoder(r.Body).Decode(&record); err != nil || record.TTL < 30 || r.PathValue("zone") != c.Zone {
		answerJSON(w, http.StatusUnprocessableEntity, object{"message": "bad record"})
		return
	}
	c.add(record.Name+"."+c.Zone, record.Data)
	answerJSON(w, http.StatusCreated, object{"domain_record": object{"id": len(c.Server.TXT("_acme-challenge." + c.Zone))}})
}

func (c Clouds) digitalOceanDelete(w http.ResponseWriter, r *http.Request) {
	name := "_acme-challenge." + c.Zone
	texts := c.Server.TXT(name)
	number, err := strconv.Atoi(r.PathValue("record"))
	if err != nil || number < 1 || number > len(texts) {
		answerJSON(w, http.StatusNotFound, object{"message": "not found"})
		return
	}
	c.drop(name, texts[number-1])
	w.WriteHeader(http.StatusNoContent)
}

func (c Clouds) hetzner(w http.ResponseWriter, r *http.Request) {
	var change struct {
		Records []struct{ Value string }
		TTL     *int
	}
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil || r.PathValue("zone") != c.Zone || change.TTL != nil && *change.TTL < 60 {
		answerJSON(w, http.StatusUnprocessableEntity, object{"error": object{"code": "invalid_input", "message": "bad record"}})
		return
	}
	for _, record := range change.Records {
		if name := r.PathValue("name") + "." + c.Zone; r.PathValue("action") == "add_records" {
			c.add(name, unquoted(record.Value))
		} else {
			c.drop(name, unquoted(record.Value))
		}
	}
	answerJSON(w, http.StatusCreated, object{"action": object{"id": 1, "status": "success", "progress": 100}})
}

// route53Set is a ResourceRecordSet.
type route53Set struct {
	Name, Type      string
	TTL             int
	ResourceRecords struct {
		ResourceRecord []struct{ Value string }
	}
}

func answerXML(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/xml")
	_, _ = fmt.Fprint(w, xml.Header, text)
}

func (c Clouds) route53Zones(w http.ResponseWriter, _ *http.Request) {
	answerXML(w, `<ListHostedZonesByNameResponse><HostedZones><HostedZone><Id>/hostedzone/Z1</Id><Name>`+c.Zone+
		`.</Name><CallerReference>1</CallerReference></HostedZone></HostedZones><IsTruncated>false</IsTruncated><MaxItems>1</MaxItems></ListHostedZonesByNameResponse>`)
}

func (c Clouds) route53Records(w http.ResponseWriter, _ *http.Request) {
	name, sets := "_acme-challenge."+c.Zone, ""
	for _, text := range c.Server.TXT(name) {
		sets += "<ResourceRecord><Value>&quot;" + text + "&quot;</Value></ResourceRecord>"
	}
	if sets != "" {
		sets = "<ResourceRecordSet><Name>" + name + ".</Name><Type>TXT</Type><TTL>120</TTL><ResourceRecords>" + sets + "</ResourceRecords></ResourceRecordSet>"
	}
	answerXML(w, "<ListResourceRecordSetsResponse><ResourceRecordSets>"+sets+"</ResourceRecordSets><IsTruncated>false</IsTruncated><MaxItems>100</MaxItems></ListResourceRecordSetsResponse>")
}

func (c Clouds) route53Change(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ChangeBatch struct {
			Changes struct {
				Change []struct {
					Action            string
					ResourceRecordSet route53Set
				}
			}
		}
	}
	if err := xml.NewDecoder(r.Body).Decode(&request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, change := range request.ChangeBatch.Changes.Change {
		var texts []string
		for _, record := range change.ResourceRecordSet.ResourceRecords.ResourceRecord {
			texts = append(texts, unquoted(record.Value))
		}
		if change.Action == "DELETE" {
			texts = nil
		}
		c.Server.setTXT(change.ResourceRecordSet.Name, texts)
	}
	answerXML(w, "<ChangeResourceRecordSetsResponse><ChangeInfo><Id>/change/C1</Id><Status>INSYNC</Status><SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt></ChangeInfo></ChangeResourceRecordSetsResponse>")
}
