"""The configuration that Choria CCM's documentation shows for its agent: each key with its value, in its order."""

PUBLIC_EXAMPLE = """
interval: 5m
health_check_interval: 1m
manifests:
  - /etc/choria/ccm/manifests/base.yaml
  - obj://ccm-manifests/app.tar.gz
  - https://config.example.com/manifests/web.tar.gz
log_level: info
nats_context: CCM
external_data_url: kv://ccm-data/common
cache_dir: /etc/choria/ccm/source
monitor_port: 9100
# registration: jetstream
"""
