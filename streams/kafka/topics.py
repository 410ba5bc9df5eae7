"""stub"""
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
async def check_topics(settings, topology=None): pass
async def create_topics(settings, topology=None):
    a=AIOKafkaAdminClient(**settings.client_arguments()); await a.start()
    P=settings.partitions
    names=[settings.topic(t) for t in "events outcomes commands nudges breakers dead-letters state".split()]
    await a.create_topics([NewTopic(n,P,1) for n in names]+[NewTopic(settings.changelog(s),P,1,topic_configs={"cleanup.policy":"compact"}) for s in ("session","tool")])
    await a.close()
