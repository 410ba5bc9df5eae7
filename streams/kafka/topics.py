"""stub"""
async def check_topics(settings, topology=None): pass
