"""Formats of tokens, as data: characters, at least how many of them, and what each vendor's tokens begin with.

These are facts that vendors document; lists of the same formats are in gitleaks and trufflehog. `tokens` makes one
expression of each alphabet.
"""

from __future__ import annotations

# Names of sets of characters, and of the form of UUIDs
ALPHABETS = {
    "alnum": "[A-Za-z0-9]", "word": "[A-Za-z0-9_-]", "dotted": "[A-Za-z0-9_.-]", "base64": "[A-Za-z0-9+/]", "hex": "[0-9a-f]",
    "HEX": "[0-9A-F]", "Hex": "[0-9a-fA-F]", "upper": "[A-Z0-9]", "lower": "[a-z0-9]", "any": "[A-Za-z0-9+/_.-]",
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}  # fmt: skip

# Alphabet, least length; `digit`: one is needed beside those of the beginning, `only`: no more; vendors and beginnings
FORMATS = """
alnum  12         neon: npg_
alnum  14         razorpay: rzp_live_ rzp_test_
alnum  16         settlemint: sm_aat_ sm_pat_ sm_sat_
alnum  17         alibaba: LTAI
alnum  20         fleetbase: flb_live_ flb_test_; github: ghp_ gho_ ghu_ ghs_ ghr_; hugging face: hf_ api_org_
alnum  20         linear: lin_api_ lin_oauth_; npm: npm_; render: rnd_; replicate: r8_
alnum  24         adafruit/aio: aio_; alchemy: alcht_
alnum  28         atlassian app: ATBB; tencent: AKID
alnum  30         apify: apify_api_; deno: ddp_ ddw_; netlify: nfp_ nfc_ nfo_ nfb_ nfu_; pagarme: ak_live_ ak_test_
alnum  30         pganalyze: pgar_; ubidots: BBFF-
alnum  32         adobe: p8e-; infracost: ico-
alnum  40         cloudflare: cfut_ cfat_ cfk_; ramp: ramp_sec_ ramp_id_
alnum  50         easypost: EZAK EZTK; jfrog: cmVmd; sonar: sqco_; tezos: edsk
alnum  60         atlassian trello: ATTA; jfrog: AKCp; grafana: eyJrIjoi
alnum  32  digit  nightfall: NF-
alnum  38  digit  clickhouse: 4b1d
alnum  32  only   cargo: cio
word   12         flutterwave: FLWSECK- FLWSECK_TEST- FLWSECK_LIVE-; slack: xapp-1- xapp-2- xwfp-
word   16         endor: endr+; gitlab runner: GR1348941; new relic: NRAK- NRII- NRIQ- NRJS- NRBR- NRRA- NRAA-
word   16         supabase: sb_secret_; tailscale: tskey-; tavily: tvly-; vault: hvs. hvb. hvr.
word   20         buildkite: bkua_ bkat_ bkct_ bkaj_ bkpi_ bkpt_; docker: dckr_pat_ dckr_oat_
word   20         figma: figd_ figu_ figo_ figuh_ figor_ figdr_ figp_; fly: fo1_; github: github_pat_
word   20         salad: salad_cloud_; vercel: vercel_ vcp_ vck_ vci_ vca_ vcr_
word   30         duffel/shippo: duffel_live_ duffel_test_ shippo_live_ shippo_test_; google: AIza; heroku: HRKU-
word   30         mongodb: mdb_sa_sk_; pinecone: pcsk_; square: EAAA; together: tgp_v1_; yandex: AQVN
word   40         brevo: xkeysib- xsmtpsib-; contentful: CFPAT-; flexport: shltm_; openshift: sha256~
word   40         photoroom: sk_pr_
word   48         scalingo: tk-us-
word   60         facebook: IGQV; frameio: fio-u-
word   80         discord: mfa.
word   16  digit  pypi: pypi-
word   20  digit  groq/xai/perplexity: gsk_ xai- pplx- nvapi- csk- fw_ fc- jina_ e2b_ bb_live_
word   40  digit  sourcegraph: sgp_
word   43  digit  voyage: pa-
word   44  digit  beamer: b_
dotted 16         gitlab: glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- gloas- glimt- glffct- glwt-
dotted 16         google: ya29. GOCSPX- AQ.A
dotted 20         doppler: dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.
dotted 20         planetscale: pscale_tkn_ pscale_pw_ pscale_oauth_
dotted 60         zoho: 1000.
dotted 30  digit  voiceflow: VF.
base64 16         aws bedrock: bedrock-api-key-
base64 16         stripe: sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ pk_test_ pk_prod_ sk_ rk_ pk_ whsec_
base64 20         fly: fm1r_ fm1a_ fm2_
base64 40         aws bedrock: ABSK; bitbucket data center: BBDC-
base64 90         fullstory: na1. eu1.
hex    30         bannerbear: bb_pr_ bb_ma_
hex    32         databricks: dapi; digitalocean: dop_v1_ doo_v1_ dor_v1_; rubygems: rubygems_; supabase: sbp_
hex    40         lightning macaroon: 0201036c6e64; pulumi: pul-; rootly: rootly_; sonar: squ_ sqp_ sqa_
hex    60         intra42: s-s4t2ud- s-s4t2af-; sourcegraph: slk_
hex    32  only   mailgun: key- pubkey-; twilio: SK AC
Hex    20         shopify: shpat_ shpca_ shppa_ shpss_
upper  12         aws: AKIA ASIA ABIA ACCA AROA AIDA AGPA ANPA
upper  16         digitalocean spaces: DO00
upper  20         age: AGE-SECRET-KEY-1
upper  26  digit  octopus: API-
lower  26         appsync: da2-
lower  40         clojars: CLOJARS_
lower  43         nuget: oy2
lower  50         neon: napi_
lower  58         nostr: nsec1
any    20         atlassian: ATATT3 ATCTT3; grafana: glsa_ glc_; sentry: sntrys_ sntryu_
any    60         teamwork: tkn.v1_
any    80         salesforce: 3MVG9 5Aep861
any    30  digit  portainer: ptr_
uuid   -          checkout: sk_ sk_test_; langfuse: pk-lf-; launchdarkly: sdk- api- mob-; mws: amzn.mws.
uuid   -          plaid: access-sandbox- access-development- access-production-; pubnub: pub-c- sub-c- sec-c-
uuid   -          robinhood: rh-api-
"""
