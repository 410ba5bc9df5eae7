"""Formats of tokens, as data: what each vendor's begin with, the characters that follow, and at least how many.

These are facts that vendors document; lists of the same formats are in gitleaks and trufflehog. `secret_patterns`
makes one expression of each alphabet; see `secret_patterns`.
"""

from __future__ import annotations

ALPHABETS = {
    "alnum": "[A-Za-z0-9]", "word": "[A-Za-z0-9_-]", "dotted": "[A-Za-z0-9_.-]", "base64": "[A-Za-z0-9+/]", "hex": "[0-9a-f]",
    "HEX": "[0-9A-F]", "Hex": "[0-9a-fA-F]", "upper": "[A-Z0-9]", "lower": "[a-z0-9]", "any": "[A-Za-z0-9+/_.-]",
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}  # fmt: skip
"""Names of sets of characters, and of the form of UUIDs."""

FORMATS = """
adafruit, aio             aio_                                                  alnum 24
age                       AGE-SECRET-KEY-1                                      upper 20
alchemy                   alcht_                                                alnum 24
alibaba                   LTAI                                                  alnum 17
apify                     apify_api_                                            alnum 30
appsync                   da2-                                                  lower 26
atlassian                 ATATT3 ATCTT3                                         any   20
atlassian app             ATBB                                                  alnum 28
atlassian trello          ATTA                                                  alnum 60
aws                       AKIA ASIA ABIA ACCA AROA AIDA AGPA ANPA               upper 12
aws bedrock               ABSK                                                  base64 40
aws bedrock               bedrock-api-key-                                      base64 16
bannerbear                bb_pr_ bb_ma_                                         hex   30
beamer                    b_                                                    word  44 digit
bitbucket data center     BBDC-                                                 base64 40
brevo                     xkeysib- xsmtpsib-                                    word  40
cargo                     cio                                                   alnum 32 only
buildkite                 bkua_ bkat_ bkct_ bkaj_ bkpi_ bkpt_                   word  20
checkout                  sk_ sk_test_                                          uuid
clickhouse                4b1d                                                  alnum 38 digit
clojars                   CLOJARS_                                              lower 40
cloudflare                cfut_ cfat_ cfk_                                      alnum 40
contentful                CFPAT-                                                word  40
databricks                dapi                                                  hex   32
deno                      ddp_ ddw_                                             alnum 30
digitalocean              dop_v1_ doo_v1_ dor_v1_                               hex   32
digitalocean spaces       DO00                                                  upper 16
discord                   mfa.                                                  word  80
docker                    dckr_pat_ dckr_oat_                                   word  20
doppler                   dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.        dotted 20
duffel, shippo            duffel_live_ duffel_test_ shippo_live_ shippo_test_   word  30
easypost                  EZAK EZTK                                             alnum 50
endor                     endr+                                                 word  16
facebook                  IGQV                                                  word  60
figma                     figd_ figu_ figo_ figuh_ figor_ figdr_ figp_          word  20
fleetbase                 flb_live_ flb_test_                                   alnum 20
flexport                  shltm_                                                word  40
flutterwave               FLWSECK- FLWSECK_TEST- FLWSECK_LIVE-                  word  12
fly                       fo1_                                                  word  20
fly                       fm1r_ fm1a_ fm2_                                      base64 20
frameio                   fio-u-                                                word  60
fullstory                 na1. eu1.                                             base64 90
github                    ghp_ gho_ ghu_ ghs_ ghr_                              alnum 20
github                    github_pat_                                           word  20
gitlab                    glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas- glimt- glffct- glwt-  dotted 16
gitlab runner             GR1348941                                             word  16
google                    AIza                                                  word  30
google                    ya29. GOCSPX- AQ.A                                    dotted 16
grafana                   glsa_ glc_                                            any   20
groq, xai, perplexity     gsk_ xai- pplx- nvapi- csk- fw_ fc- jina_ e2b_ bb_live_   word 20 digit
heroku                    HRKU-                                                 word  30
hugging face              hf_ api_org_                                          alnum 20
infracost                 ico-                                                  alnum 32
intra42                   s-s4t2ud- s-s4t2af-                                   hex   60
jfrog                     AKCp                                                  alnum 60
jfrog                     cmVmd                                                 alnum 50
langfuse                  pk-lf-                                                uuid
launchdarkly              sdk- api- mob-                                        uuid
linear                    lin_api_ lin_oauth_                                   alnum 20
mailgun                   key- pubkey-                                          hex   32 only
mongodb                   mdb_sa_sk_                                            word  30
mws                       amzn.mws.                                             uuid
neon                      npg_                                                  alnum 12
neon                      napi_                                                 lower 50
netlify                   nfp_ nfc_ nfo_ nfb_ nfu_                              alnum 30
new relic                 NRAK- NRII- NRIQ- NRJS- NRBR- NRRA- NRAA-             word  16
nightfall                 NF-                                                   alnum 32 digit
nostr                     nsec1                                                 lower 58
npm                       npm_                                                  alnum 20
nuget                     oy2                                                   lower 43
octopus                   API-                                                  upper 26 digit
openshift                 sha256~                                               word  40
pagarme                   ak_live_ ak_test_                                     alnum 30
pganalyze                 pgar_                                                 alnum 30
photoroom                 sk_pr_                                                word  40
pinecone                  pcsk_                                                 word  30
plaid                     access-sandbox- access-development- access-production-  uuid
planetscale               pscale_tkn_ pscale_pw_ pscale_oauth_                  dotted 20
portainer                 ptr_                                                  any   30 digit
pubnub                    pub-c- sub-c- sec-c-                                  uuid
pulumi                    pul-                                                  hex   40
pypi                      pypi-                                                 word  16 digit
ramp                      ramp_sec_ ramp_id_                                    alnum 40
razorpay                  rzp_live_ rzp_test_                                   alnum 14
render                    rnd_                                                  alnum 20
replicate                 r8_                                                   alnum 20
robinhood                 rh-api-                                               uuid
rootly                    rootly_                                               hex   40
rubygems                  rubygems_                                             hex   32
salad                     salad_cloud_                                          word  20
salesforce                3MVG9                                                 any   80
salesforce                5Aep861                                               any   80
scalingo                  tk-us-                                                word  48
sentry                    sntrys_ sntryu_                                       any   20
settlemint                sm_aat_ sm_pat_ sm_sat_                               alnum 16
shopify                   shpat_ shpca_ shppa_ shpss_                           Hex   20
slack                     xapp-1- xapp-2- xwfp-                                 word  12
sonar                     squ_ sqp_ sqa_                                        hex   40
sonar                     sqco_                                                 alnum 50
sourcegraph               sgp_                                                  word  40 digit
sourcegraph               slk_                                                  hex   60
square                    EAAA                                                  word  30
stripe                    sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ pk_test_ pk_prod_ sk_ rk_ pk_ whsec_  base64 16
supabase                  sbp_                                                  hex   32
supabase                  sb_secret_                                            word  16
tailscale                 tskey-                                                word  16
tezos                     edsk                                                  alnum 50
tavily                    tvly-                                                 word  16
teamwork                  tkn.v1_                                               any   60
tencent                   AKID                                                  alnum 28
together                  tgp_v1_                                               word  30
twilio                    SK AC                                                 hex   32 only
ubidots                   BBFF-                                                 alnum 30
vault                     hvs. hvb. hvr.                                        word  16
vercel                    vercel_ vcp_ vck_ vci_ vca_ vcr_                      word  20
voiceflow                 VF.                                                   dotted 30 digit
voyage                    pa-                                                   word  43 digit
yandex                    AQVN                                                  word  30
zoho                      1000.                                                 dotted 60
"""
"""Vendor, beginnings, alphabet, least length; `digit`: one is needed beside those of the beginning, `only`: no more."""
