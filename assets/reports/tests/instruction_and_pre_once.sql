{{ config(meta={'description': 'No two edits that have an instruction have the same one and the same text before.'}) }}
select instruction_md5, pre_md5
from {{ ref('stg_edits') }}
where instruction_source <> 'none'
group by instruction_md5, pre_md5
having count(*) > 1
